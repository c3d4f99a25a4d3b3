// draft.ngram is held against a search written down as its definition.
#include "tenon/abi/draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "support/component.h"

namespace tenon::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Text = std::vector<int32_t>;

Text propose(const Component& draft, const Text& text, uint32_t cap, uint32_t slot = 0) {
  const auto& table = draft.table<tenon_draft>();
  Text out(cap + 4, -9), parent(cap, 0);
  std::iota(parent.begin(), parent.end(), -1);
  uint32_t count = 99;
  EXPECT_EQ(table.propose(draft.self(), slot, text.data(), static_cast<uint32_t>(text.size()), out.data(),
                          parent.data(), cap, &count, nullptr),
            TENON_OK);
  EXPECT_LE(count, cap);
  EXPECT_TRUE(std::all_of(out.begin() + count, out.end(), [](int32_t t) { return t == -9; }));
  out.resize(count);
  return out;
}

Text model(const Text& text, int64_t k, int64_t min, int64_t max) {
  const auto n = static_cast<int64_t>(text.size());
  for (int64_t length = max; length >= min; --length) {
    for (int64_t place = n - 1; place >= length; --place) {
      if (!std::equal(text.begin() + place - length, text.begin() + place, text.end() - length, text.end())) continue;
      Text all = text;
      for (int64_t i = 0; i < k; ++i) all.push_back(all[static_cast<size_t>(place + i)]);
      return {all.begin() + n, all.end()};
    }
  }
  return {};
}

TEST(Ngram, ProposesWhatFollowedBefore) {
  const Component draft("draft", "ngram", {{"k", 4}});
  EXPECT_EQ(draft.table<tenon_draft>().max_tokens(draft.self()), 4U);
  EXPECT_EQ(draft.table<tenon_draft>().flags, 0U);
  EXPECT_THAT(propose(draft, {1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, 4), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(propose(draft, {1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, 2), ElementsAre(4, 5));
  EXPECT_THAT(propose(draft, {1, 2, 3, 9, 3, 8, 1, 2, 3}, 1), ElementsAre(9)) << "a longer match wins";
  EXPECT_THAT(propose(draft, {7, 3, 1, 3, 2, 5, 3}, 1), ElementsAre(2)) << "the most recent of equals wins";
  EXPECT_THAT(propose(draft, {5, 6, 5, 6}, 4), ElementsAre(5, 6, 5, 6)) << "a loop goes on";
  EXPECT_THAT(propose(draft, {5, 5}, 4), ElementsAre(5, 5, 5, 5));
}

TEST(Ngram, ProposesNothingWithoutAMatch) {
  const Component draft("draft", "ngram", {{"min_ngram", 2}});
  EXPECT_THAT(propose(draft, {}, 5), IsEmpty());
  EXPECT_THAT(propose(draft, {1}, 5), IsEmpty());
  EXPECT_THAT(propose(draft, {1, 1}, 5), IsEmpty()) << "one token is too few";
  EXPECT_THAT(propose(draft, {1, 2, 3, 4}, 5), IsEmpty());
  EXPECT_THAT(propose(draft, {1, 1, 1}, 0), IsEmpty());
}

TEST(Ngram, EqualsTheModel) {
  std::mt19937_64 random(1);
  for (const int64_t max : {1, 2, 3, 7}) {
    for (const int64_t min : {1, 2, 7}) {
      if (min > max) continue;
      const Component draft("draft", "ngram", {{"k", 6}, {"min_ngram", min}, {"max_ngram", max}});
      for (int i = 0; i < 300; ++i) {
        Text text(random() % 60);
        const uint64_t letters = 1 + random() % 5;
        for (int32_t& t : text) t = static_cast<int32_t>(random() % letters);
        const auto cap = static_cast<uint32_t>(random() % 9);
        EXPECT_EQ(propose(draft, text, cap, i % 3), model(text, std::min<int64_t>(cap, 6), min, max));
      }
    }
  }
}

TEST(Ngram, RefusesAnEmptyRangeOfLengths) {
  try {
    const Component draft("draft", "ngram", {{"min_ngram", 4}, {"max_ngram", 3}});
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("min_ngram = 4 is greater than max_ngram = 3"));
  }
}

}  // namespace
}  // namespace tenon::test
