// This tests the pages of kv_cache.paged without a cache around them.
#include "kv_cache/paged/page_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <set>

namespace tenon::paged {
namespace {

constexpr uint32_t kNone = PagePool::kNone;
constexpr uint64_t kNothing = PagePool::kNothing;
using Tokens = std::array<int32_t, 2>;

// Returns a page that is held and can be found.
uint32_t entered(PagePool& pool, uint64_t before, const Tokens& tokens) {
  const uint32_t page = pool.take();
  pool.enter(page, before, tokens);
  return page;
}

TEST(PagePool, CountsWhoHoldsAPage) {
  PagePool pool(3, 2);
  const uint32_t page = pool.take();
  EXPECT_EQ(pool.holders(page), 1U);
  pool.hold(page);
  EXPECT_EQ(pool.holders(page), 2U);
  pool.release(page);
  EXPECT_EQ(pool.free(), 2U);
  pool.release(page);
  EXPECT_EQ(pool.holders(page), 0U);
  EXPECT_EQ(pool.free(), 3U);
}

TEST(PagePool, FindsTokensAfterTheSameTextOnly) {
  PagePool pool(4, 2);
  const uint32_t first = entered(pool, kNothing, {1, 2}), second = entered(pool, pool.text(first), {3, 4});
  EXPECT_EQ(pool.find(kNothing, Tokens{1, 2}), first);
  EXPECT_EQ(pool.find(pool.text(first), Tokens{3, 4}), second);
  EXPECT_EQ(pool.find(kNothing, Tokens{3, 4}), kNone);
  EXPECT_EQ(pool.find(pool.text(second), Tokens{3, 4}), kNone);
  EXPECT_EQ(pool.find(kNothing, Tokens{1, 3}), kNone);
}

TEST(PagePool, TokensWithTheSameHashAreToldApart) {
  PagePool pool(4, 2, [](uint64_t, std::span<const int32_t>) { return uint64_t{7}; });
  const uint32_t a = entered(pool, kNothing, {1, 2}), b = entered(pool, kNothing, {2, 1});
  const uint32_t c = entered(pool, pool.text(a), {1, 2});
  EXPECT_EQ(pool.find(kNothing, Tokens{1, 2}), a);
  EXPECT_EQ(pool.find(kNothing, Tokens{2, 1}), b);
  EXPECT_EQ(pool.find(pool.text(a), Tokens{1, 2}), c);
  EXPECT_EQ(pool.find(pool.text(b), Tokens{1, 2}), kNone);
  pool.forget(b);  // it is in the middle of the bucket
  EXPECT_EQ(pool.find(kNothing, Tokens{1, 2}), a);
  EXPECT_EQ(pool.find(kNothing, Tokens{2, 1}), kNone);
  EXPECT_EQ(pool.find(pool.text(a), Tokens{1, 2}), c);
}

TEST(PagePool, GivesEmptyPagesAwayFirstAndThenThoseThatWereLetGoLongestAgo) {
  PagePool pool(4, 2);
  const uint32_t a = entered(pool, kNothing, {1, 1}), b = entered(pool, kNothing, {2, 2});
  const uint32_t c = entered(pool, kNothing, {3, 3});
  for (const uint32_t page : {b, a, c}) pool.release(page);
  // found again: now it is the last
  pool.hold(b);
  pool.release(b);
  EXPECT_EQ(pool.free(), 4U);
  const uint32_t empty = pool.take();
  EXPECT_EQ(std::set<uint32_t>({a, b, c}).count(empty), 0U);
  EXPECT_EQ(pool.take(), a);
  EXPECT_EQ(pool.find(kNothing, Tokens{1, 1}), kNone) << "its tokens were lost";
  EXPECT_EQ(pool.find(kNothing, Tokens{2, 2}), b);
  EXPECT_EQ(pool.take(), c);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.take(), kNone);
  EXPECT_EQ(pool.free(), 0U);
}

TEST(PagePool, WhatFollowedALostTextIsNotFoundAfterAnotherOneInItsPage) {
  PagePool pool(2, 2);
  const uint32_t first = entered(pool, kNothing, {1, 1}), second = entered(pool, pool.text(first), {5, 5});
  pool.release(first);
  ASSERT_EQ(pool.take(), first);
  pool.enter(first, kNothing, Tokens{2, 2});
  EXPECT_EQ(pool.find(pool.text(first), Tokens{5, 5}), kNone) << "1 1 5 5 is not 2 2 5 5";
  EXPECT_EQ(pool.holders(second), 1U);
}

TEST(PagePool, ForgottenPagesAreEmptyWhenNobodyHoldsThem) {
  PagePool pool(2, 2);
  const uint32_t page = entered(pool, kNothing, {1, 1});
  pool.forget(page);
  pool.forget(page);
  EXPECT_EQ(pool.find(kNothing, Tokens{1, 1}), kNone);
  pool.enter(page, kNothing, Tokens{4, 4});
  pool.release(page);
  pool.forget(page);
  EXPECT_EQ(pool.free(), 2U);
  EXPECT_NE(pool.take(), kNone);
  EXPECT_NE(pool.take(), kNone);
  EXPECT_EQ(pool.take(), kNone);
}

// It is compared with a naive one: pages by what they hold, and the order in which they were let go.
TEST(PagePool, IsTheNaiveOneUnderRandomCalls) {
  PagePool pool(6, 2, [](uint64_t before, std::span<const int32_t> t) { return before + static_cast<uint64_t>(t[0]); });
  std::map<uint32_t, uint32_t> holders;
  std::map<std::pair<uint64_t, Tokens>, uint32_t> known;
  std::vector<uint32_t> idle;
  const auto text_lost = [&](uint32_t page) { std::erase_if(known, [&](const auto& k) { return k.second == page; }); };
  const auto is_known = [&](uint32_t page) {
    return std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.second == page; });
  };
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const auto page = static_cast<uint32_t>(random() % 6);
    const Tokens tokens = {static_cast<int32_t>(random() % 2), static_cast<int32_t>(random() % 2)};
    const uint64_t before = random() % 2 == 0 ? kNothing : pool.text(static_cast<uint32_t>(random() % 6));
    switch (random() % 4) {
      case 0: {
        const uint32_t taken = pool.take();
        if (taken == kNone) {
          EXPECT_EQ(holders.size(), 6U);
          break;
        }
        EXPECT_EQ(holders.count(taken), 0U);
        if (is_known(taken)) {
          EXPECT_EQ(holders.size() + idle.size(), 6U) << "an empty page was there";
          EXPECT_EQ(taken, idle.front());
          idle.erase(idle.begin());
        }
        text_lost(taken);
        holders[taken] = 1;
        break;
      }
      case 1:
        if (holders.count(page) == 0) break;
        pool.release(page);
        if (--holders[page] > 0) break;
        holders.erase(page);
        if (is_known(page)) idle.push_back(page);
        break;
      case 2:
        if (holders.count(page) == 0 || is_known(page) || known.count({before, tokens}) != 0) break;
        pool.enter(page, before, tokens);
        known[{before, tokens}] = page;
        break;
      default: {
        const auto expected = known.find({before, tokens});
        ASSERT_EQ(pool.find(before, tokens), expected == known.end() ? kNone : expected->second);
        if (expected == known.end()) break;
        if (random() % 4 == 0) {
          pool.forget(expected->second);
          std::erase(idle, expected->second);
          known.erase(expected);
          break;
        }
        pool.hold(expected->second);
        std::erase(idle, expected->second);
        ++holders[expected->second];
        break;
      }
    }
    ASSERT_EQ(pool.free(), 6 - holders.size());
  }
}

}  // namespace
}  // namespace tenon::paged
