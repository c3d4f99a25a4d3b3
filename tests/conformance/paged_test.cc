// These tests look at what kv_cache.paged promises beyond its kind: pages that are taken, given back, shared, and found
// again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "conformance/kv_cache_host.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::KvCacheHost;
using testing::HasSubstr;

constexpr uint32_t kPage = 16, kSlots = 4, kCapacity = 5 * kPage;

// The slots have up to five pages over a pool of eight, with the text 1, 2, 3, ... unless said otherwise.
class Paged : public testing::Test {
 protected:
  explicit Paged(const std::vector<Setting>& more = {})
      : Paged(with_pool(more), {.rows = kCapacity, .seqs = kSlots, .slots = kSlots, .capacity = kCapacity}) {}
  Paged(const std::vector<Setting>& settings, const KvCacheHost::Shape& shape)
      : cache_("kv_cache", "paged", settings), host_(cache_, shape), text_(shape.capacity) {
    std::iota(text_.begin(), text_.end(), 1);
  }

  static std::vector<Setting> with_pool(std::vector<Setting> more) {
    more.push_back({"pool", int64_t{8 * kPage}});
    return more;
  }

  const tenon_kv_cache& table() const { return host_.table(); }
  uint32_t free_pages() const {
    uint32_t page_tokens = 0;
    const uint32_t pages = table().free_pages(host_.self(), &page_tokens);
    EXPECT_EQ(page_tokens, kPage);
    return pages;
  }
  // Appends to a slot; what all slots hold is then compared with the model.
  void append(uint32_t slot, uint32_t rows) { append(slot, rows, text_); }
  void append(uint32_t slot, uint32_t rows, const std::vector<int32_t>& text) {
    ASSERT_EQ(host_.step({{slot, rows, text}}, random_), "");
  }
  // A sequence grows page by page, each of which may be found from then on.
  void write(uint32_t slot, uint32_t pages, const std::vector<int32_t>& text) {
    for (uint32_t i = 0; i < pages; ++i) {
      append(slot, kPage, text);
      share(slot, host_.length(slot), text);
    }
  }
  // Slots 1 and 2 become forks of slot 0 within a page, and all three go on.
  void write_to_forks() {
    write(0, 9, text_);
    append(0, 5);
    for (const uint32_t to : {1U, 2U}) ASSERT_EQ(host_.fork(0, to, 9 * kPage + 5), TENON_OK) << host_.last_reason();
    for (int i = 0; i < 6; ++i) {
      append(1, 12, other_from(9 * kPage + 5));
      append(0, 12);
      append(2, 1);
    }
  }
  void share(uint32_t slot, uint32_t n) { share(slot, n, text_); }
  void share(uint32_t slot, uint32_t n, const std::vector<int32_t>& text) {
    ASSERT_EQ(table().share(host_.self(), slot, text.data(), n, &why_), TENON_OK) << reason_;
  }
  uint32_t find(const std::vector<int32_t>& text, uint32_t* held = nullptr) const {
    uint32_t lie_held = 0;
    const uint32_t found = table().find(host_.self(), text.data(), static_cast<uint32_t>(text.size()), &lie_held);
    if (held != nullptr) *held = lie_held;
    return found;
  }
  uint32_t adopt(uint32_t slot, uint32_t n) {
    uint32_t kv_len = 0;
    EXPECT_EQ(host_.adopt(slot, std::span(text_).first(n), kv_len), TENON_OK) << host_.last_reason();
    return kv_len;
  }
  void end(uint32_t slot) { ASSERT_EQ(host_.truncate(slot, 0), TENON_OK); }
  tenon_status reserve(uint32_t slot, uint32_t kv_len) { return table().reserve(host_.self(), slot, kv_len, &why_); }
  // Returns the text, but with other tokens from `from` on.
  std::vector<int32_t> other_from(uint32_t from) const {
    std::vector<int32_t> text = text_;
    for (size_t i = from; i < text.size(); ++i) text[i] += 1000;
    return text;
  }

  std::mt19937_64 random_{3};
  Component cache_;
  KvCacheHost host_;
  std::vector<int32_t> text_;
  char reason_[256] = "";
  tenon_reason why_{reason_, sizeof(reason_)};
};

TEST_F(Paged, TakesPagesAsASequenceGrowsAndGivesThemBack) {
  EXPECT_EQ(free_pages(), 8U);
  append(0, kPage);
  EXPECT_EQ(free_pages(), 7U);
  append(0, 1);
  EXPECT_EQ(free_pages(), 6U);
  ASSERT_EQ(host_.truncate(0, kPage), TENON_OK);
  EXPECT_EQ(free_pages(), 7U);
  end(0);
  EXPECT_EQ(free_pages(), 8U);
}

TEST_F(Paged, SaysHowManyPagesAreMissing) {
  append(0, 5 * kPage);
  append(1, 2 * kPage);
  EXPECT_EQ(reserve(1, 4 * kPage), TENON_NO_SPACE);
  EXPECT_THAT(reason_, HasSubstr("2 pages of 16 tokens more are wanted, and 1 of 8 are free"));
  EXPECT_EQ(free_pages(), 1U) << "it took some all the same";
  append(1, kPage);
  EXPECT_EQ(free_pages(), 0U);
}

TEST_F(Paged, FindsWholePagesThatItWasToldOfAgain) {
  append(0, 3 * kPage + 5);
  EXPECT_EQ(find(text_), 0U);
  share(0, 2 * kPage + 9);
  uint32_t held = 0;
  EXPECT_EQ(find(text_, &held), 2 * kPage);
  EXPECT_EQ(held, 2 * kPage);
  EXPECT_EQ(find({text_.begin(), text_.begin() + 2 * kPage - 1}), kPage)
      << "the second page is not asked for as a whole";
  EXPECT_EQ(find(other_from(kPage + 3)), kPage);
  end(0);
  EXPECT_EQ(find(text_, &held), 2 * kPage);
  EXPECT_EQ(held, 0U);
  EXPECT_EQ(free_pages(), 8U) << "pages that nobody holds are free";
}

TEST_F(Paged, SharedPagesAreHeldOnceAndFreeWhenTheLastHolderEnds) {
  append(0, 3 * kPage);
  share(0, 3 * kPage);
  EXPECT_EQ(adopt(1, 2 * kPage + 4), 2 * kPage);
  EXPECT_EQ(adopt(2, 3 * kPage), 3 * kPage);
  EXPECT_EQ(free_pages(), 5U);
  append(1, 7);
  append(2, 7);
  EXPECT_EQ(free_pages(), 3U);
  end(0);
  EXPECT_EQ(free_pages(), 3U);
  end(2);
  EXPECT_EQ(free_pages(), 5U);
  end(1);
  EXPECT_EQ(free_pages(), 8U);
}

TEST_F(Paged, AForkCopiesAPageWhenSomebodyWritesToIt) {
  append(0, kPage + 5);
  ASSERT_EQ(host_.fork(0, 1, kPage + 5), TENON_OK);
  ASSERT_EQ(host_.fork(0, 2, kPage + 3), TENON_OK);
  EXPECT_EQ(free_pages(), 6U) << "three sequences hold two pages";
  append(1, 4, other_from(kPage + 5));
  EXPECT_EQ(free_pages(), 5U);
  append(2, 4, other_from(kPage + 3));
  EXPECT_EQ(free_pages(), 4U);
  append(0, 4);  // nobody else holds its page by now
  EXPECT_EQ(free_pages(), 4U);
}

TEST_F(Paged, ASequenceThatIsCutIntoASharedPageWritesToACopy) {
  append(0, 2 * kPage);
  share(0, 2 * kPage);
  EXPECT_EQ(adopt(1, 2 * kPage), 2 * kPage);
  ASSERT_EQ(host_.truncate(1, kPage + 6), TENON_OK);
  append(1, 3, other_from(kPage + 6));
  EXPECT_EQ(find(text_), 2 * kPage) << "the other sequence's page holds what it held";
  end(0);
  EXPECT_EQ(adopt(2, 2 * kPage), 2 * kPage);
  append(2, 1);
}

TEST_F(Paged, SoDoesTheSequenceThatWasForked) {
  append(0, kPage + 9);
  ASSERT_EQ(host_.fork(0, 1, kPage + 9), TENON_OK);
  ASSERT_EQ(host_.truncate(0, kPage + 3), TENON_OK);
  append(0, 5, other_from(kPage + 3));
  append(1, 1);
}

// A copy that is still to be made must not go to a page that has another sequence by then.
TEST_F(Paged, AnImportComesAfterCopiesThatWait) {
  const std::vector<int32_t> other = other_from(0);
  append(0, 9);
  append(2, 9, other);
  const auto bytes = host_.export_sequence(2);
  ASSERT_EQ(host_.fork(0, 1, 9), TENON_OK);
  ASSERT_EQ(reserve(1, 10), TENON_OK);  // its page will be a copy
  end(1);
  ASSERT_EQ(host_.import_sequence(3, 9, bytes, host_, 2), TENON_OK);
  append(3, 2, other);
}

TEST_F(Paged, APageThatOnlyItsWriterHoldsIsNoLongerFound) {
  append(0, 2 * kPage);
  share(0, 2 * kPage);
  ASSERT_EQ(host_.truncate(0, kPage + 6), TENON_OK);
  EXPECT_EQ(find(text_), 2 * kPage);
  append(0, 3, other_from(kPage + 6));
  EXPECT_EQ(find(text_), kPage);
  EXPECT_EQ(free_pages(), 6U) << "nothing had to be copied";
}

TEST_F(Paged, WhereRoomIsNeededTheEndsOfTheOldestTextsAreLostFirst) {
  const std::vector<int32_t> other = other_from(0);
  append(0, 3 * kPage);
  append(1, 3 * kPage, other);
  share(0, 3 * kPage);
  share(1, 3 * kPage, other);
  end(0);
  end(1);
  append(2, 2 * kPage, other_from(1));  // it takes the two pages that hold nothing
  EXPECT_EQ(find(text_), 3 * kPage);
  append(2, 1, other_from(1));
  EXPECT_EQ(find(text_), 2 * kPage);
  EXPECT_EQ(find(other), 3 * kPage);
  EXPECT_EQ(adopt(0, kPage), kPage);
  append(2, 2 * kPage - 1, other_from(1));
  EXPECT_EQ(find(text_), kPage);
  end(0);
  append(3, 3 * kPage, other_from(2));
  EXPECT_EQ(find(text_), kPage) << "it was in use after all of the others";
  EXPECT_EQ(find(other), 0U);
}

TEST_F(Paged, WhatAFailedSequenceHeldIsNotFound) {
  append(0, 2 * kPage);
  share(0, 2 * kPage);
  EXPECT_EQ(adopt(1, 2 * kPage), 2 * kPage);
  share(1, 0);
  EXPECT_EQ(find(text_), 0U);
  end(0);
  end(1);
  EXPECT_EQ(free_pages(), 8U);
}

TEST_F(Paged, TakesWhatAStaticCacheExportsAndTheOtherWayRound) {
  const Component other("kv_cache", "static");
  KvCacheHost fixed(other, {.rows = 3, .seqs = 2, .slots = 2, .capacity = 60});
  append(0, 2 * kPage + 7);
  const auto bytes = host_.export_sequence(0);
  ASSERT_EQ(fixed.import_sequence(1, 2 * kPage + 7, bytes, host_, 0), TENON_OK) << fixed.last_reason();
  ASSERT_EQ(fixed.step({{1, 2}}, random_), "");
  const uint32_t length = fixed.length(1);
  ASSERT_EQ(host_.import_sequence(2, length, fixed.export_sequence(1), fixed, 1), TENON_OK) << host_.last_reason();
  append(2, 3, {});
}

TEST_F(Paged, AdoptsOnlyIntoASlotThatHasNothing) {
  append(0, kPage);
  share(0, kPage);
  append(1, 1);
  uint32_t kv_len = 0;
  EXPECT_EQ(host_.adopt(1, text_, kv_len), TENON_ERROR);
  EXPECT_THAT(host_.last_reason(), HasSubstr("slot 1 adopts a beginning but has one"));
}

class PagedWithoutReuse : public Paged {
 protected:
  PagedWithoutReuse() : Paged({{"reuse", false}}) {}
};

TEST_F(PagedWithoutReuse, FindsNothing) {
  append(0, 2 * kPage);
  share(0, 2 * kPage);
  EXPECT_EQ(find(text_), 0U);
  EXPECT_EQ(adopt(1, 2 * kPage), 0U);
}

// There are three layers: one sees everything, one has a window of 24 and one of 48; a step has up to 16 rows.
class PagedWindows : public Paged {
 protected:
  static constexpr KvCacheHost::Shape kShape = {
      .rows = kPage, .seqs = kSlots, .slots = kSlots, .capacity = 16 * kPage, .window = 24};
  explicit PagedWindows(const std::vector<Setting>& settings = {}) : Paged(settings, kShape) {}

  // Fills what the window's layers have beyond the running sequences with other texts.
  void fill_windows() {
    for (uint32_t slot = 1; slot < kSlots; ++slot) write(slot, 16, other_from(slot));
  }
};

TEST_F(PagedWindows, PlanTheirWindowsAndTheBytesOfAPageForEachToken) {
  const uint64_t whole = 2 * 2 * (8 + 8), window = 2 * 3 * (5 + 19), longer = 2 * (64 + 32);  // a token's, in fp16
  // There are pages with the window, the rows of a step and one step ahead; as many again for beginnings; and the blank
  // one.
  const uint64_t pages = 2 * kSlots * 4 + 1, longer_pages = 2 * kSlots * 5 + 1;
  const uint64_t bytes = kPage * (kSlots * 16 * whole + pages * window + longer_pages * longer);
  EXPECT_GE(host_.footprint().store_bytes[0], bytes);
  EXPECT_LE(host_.footprint().store_bytes[0], bytes + 6 * 256);
  EXPECT_EQ(table().used_bytes(host_.self(), 100), 100 * whole + 24 * window + 48 * longer);
}

TEST_F(PagedWindows, ABeginningIsFoundAsLongAsItsWindowsAreThere) {
  write(0, 10, text_);
  EXPECT_EQ(find(text_), 10 * kPage);
  EXPECT_EQ(find(other_from(3 * kPage)), 3 * kPage) << "its windows were given back and not needed yet";
  EXPECT_EQ(adopt(1, 3 * kPage + 1), 3 * kPage);
  append(1, kPage, other_from(3 * kPage));
  end(1);
  fill_windows();
  EXPECT_EQ(find(other_from(3 * kPage)), 0U);
  uint32_t held = 0;
  EXPECT_EQ(find(text_, &held), 10 * kPage) << "its sequence runs";
  EXPECT_EQ(held, 10 * kPage);
  end(1);
  EXPECT_EQ(adopt(1, 16 * kPage), 10 * kPage);
  append(1, 5);
}

TEST_F(PagedWindows, ASequenceIsCutAsFarAsItsWindowsReach) {
  write(0, 10, text_);
  EXPECT_EQ(adopt(1, 16 * kPage), 10 * kPage);
  append(1, kPage);
  ASSERT_EQ(host_.truncate(1, 10 * kPage), TENON_OK) << "the rows of a step can be taken back";
  append(1, 3, other_from(10 * kPage));
  EXPECT_EQ(host_.truncate(1, 7 * kPage), TENON_REFUSED);
  EXPECT_THAT(host_.last_reason(), HasSubstr("layers with a window of 24 have none before 128 any more"));
  EXPECT_EQ(host_.fork(1, 2, 7 * kPage), TENON_REFUSED);
  append(1, 1, other_from(10 * kPage));
}

// Pages of windows are copied where a fork writes to them, and come back when all have ended.
TEST_F(PagedWindows, ForksWriteToCopies) {
  const uint32_t free = free_pages();
  write_to_forks();
  if (HasFatalFailure()) return;
  for (uint32_t slot = 0; slot < kSlots; ++slot) end(slot);
  EXPECT_EQ(free_pages(), free);
}

TEST_F(PagedWindows, AnImportedWindowIsNotFoundWhereItDoesNotFillItsPages) {
  append(0, kPage);
  while (host_.length(0) < 10 * kPage) append(0, kPage);
  const Component other("kv_cache", "static");
  KvCacheHost fixed(other, kShape);
  ASSERT_EQ(fixed.import_sequence(1, 10 * kPage, host_.export_sequence(0), host_, 0), TENON_OK) << fixed.last_reason();
  ASSERT_EQ(fixed.step({{1, 5, text_}}, random_), "");
  const uint32_t length = fixed.length(1);
  ASSERT_EQ(host_.import_sequence(2, length, fixed.export_sequence(1), fixed, 1), TENON_OK) << host_.last_reason();
  append(2, 3);
  end(0);
  share(2, length);
  // A window of 48 before 10 pages begins within page 7, of which the imported sequence has no more.
  EXPECT_EQ(find(text_), 0U);
  append(2, kPage);
  share(2, host_.length(2));
  EXPECT_EQ(find(text_), 11 * kPage);
}

class PagedWindowsWithoutReuse : public PagedWindows {
 protected:
  PagedWindowsWithoutReuse() : PagedWindows({{"reuse", false}, {"pool", int64_t{17 * kPage}}}) {}
};

TEST_F(PagedWindowsWithoutReuse, TakeTheirWindowsAloneAndNoMorePagesThanThePool) {
  const uint64_t whole = 2 * 2 * (8 + 8), window = 2 * 3 * (5 + 19), longer = 2 * (64 + 32);
  const uint64_t bytes = kPage * (17 * whole + (4 * kSlots + 1) * window + (17 + 1) * longer);
  EXPECT_GE(host_.footprint().store_bytes[0], bytes);
  EXPECT_LE(host_.footprint().store_bytes[0], bytes + 6 * 256);
  write(0, 16, text_);
  EXPECT_EQ(find(text_), 0U);
}

// Every layer has a tail of 24 tokens beside its codes; two see everything besides, and a step has up to 16 rows.
class PagedTails : public Paged {
 protected:
  static constexpr KvCacheHost::Shape kShape = {
      .rows = kPage, .seqs = kSlots, .slots = kSlots, .capacity = 16 * kPage, .layers = 2};
  PagedTails() : Paged({{"format", std::string("int8")}, {"tail", int64_t{24}}}, kShape) {}
};

TEST_F(PagedTails, HaveTheMemoryOfAWindow) {
  const uint64_t codes = 2 * (8 + 8 + 4) + 3 * (5 + 19 + 4), tail = 2 * (2 * (8 + 8) + 3 * (5 + 19));  // a token's
  const uint64_t pages = 2 * kSlots * 4 + 1;  // PagedWindows has so many for its window of 24
  const uint64_t bytes = kPage * (kSlots * 16 * codes + pages * tail);
  EXPECT_GE(host_.footprint().store_bytes[0], bytes);
  EXPECT_LE(host_.footprint().store_bytes[0], bytes + 12 * 256);
  EXPECT_EQ(table().used_bytes(host_.self(), 100), 100 * codes + 24 * tail);
}

// A beginning that is found has its newest tokens in fp16: where pages of tails are needed,
// beginnings that they end are computed anew.
TEST_F(PagedTails, ABeginningIsFoundAsLongAsItsTailIsThere) {
  write(0, 10, text_);
  EXPECT_EQ(find(text_), 10 * kPage);
  EXPECT_EQ(find(other_from(3 * kPage)), 3 * kPage) << "its tail was given back and not needed yet";
  EXPECT_EQ(adopt(1, 3 * kPage + 1), 3 * kPage);
  append(1, kPage, other_from(3 * kPage));
  end(1);
  for (uint32_t slot = 1; slot < kSlots; ++slot) write(slot, 16, other_from(slot));
  EXPECT_EQ(find(other_from(3 * kPage)), 0U);
  EXPECT_EQ(find(text_), 10 * kPage) << "its sequence runs";
  end(1);
  EXPECT_EQ(adopt(1, 16 * kPage), 10 * kPage);
  append(1, 5);
}

TEST_F(PagedTails, ForksWriteToCopiesOfCodesAndTail) {
  const uint32_t free = free_pages();
  write_to_forks();
  if (HasFatalFailure()) return;
  EXPECT_EQ(host_.truncate(0, 7 * kPage), TENON_REFUSED);
  EXPECT_THAT(host_.last_reason(), HasSubstr("tails of 24 have none before"));
  for (uint32_t slot = 0; slot < kSlots; ++slot) end(slot);
  EXPECT_EQ(free_pages(), free);
}

TEST_F(PagedTails, TakeWhatOnePageASlotExportsAndTheOtherWayRound) {
  while (host_.length(0) < 10 * kPage) append(0, kPage);
  const Component other("kv_cache", "int8", {{"tail", int64_t{24}}});
  KvCacheHost fixed(other, kShape);
  ASSERT_EQ(fixed.import_sequence(1, 10 * kPage, host_.export_sequence(0), host_, 0), TENON_OK) << fixed.last_reason();
  ASSERT_EQ(fixed.step({{1, 5, text_}}, random_), "");
  const uint32_t length = fixed.length(1);
  ASSERT_EQ(host_.import_sequence(2, length, fixed.export_sequence(1), fixed, 1), TENON_OK) << host_.last_reason();
  append(2, 3);
}

std::string plan_error(const std::vector<Setting>& settings) {
  try {
    const Component cache("kv_cache", "paged", settings);
    const KvCacheHost host(cache, {.capacity = 100});
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(PagedPool, HoldsOneWholeSequenceAtLeast) {
  EXPECT_THAT(plan_error({{"pool", int64_t{96}}}),
              HasSubstr("the pool has 6 pages of 16 tokens, but a sequence of kv_cache.capacity = 100 tokens takes 7"));
  EXPECT_EQ(plan_error({{"pool", int64_t{97}}}), "");
  EXPECT_THAT(plan_error({{"pool_memory", 1e-9}}), HasSubstr("make the pool larger"));
}

TEST(PagedPool, TakesItsShareOfTheDevicesMemory) {
  const Component cache("kv_cache", "paged", {{"pool_memory", 1e-4}});
  const KvCacheHost host(cache, {});
  uint32_t page_tokens = 0;
  const uint64_t pages = host.table().free_pages(host.self(), &page_tokens);
  const uint64_t memory = cache.device().table().memory / 10000;
  const uint64_t page = host.table().used_bytes(host.self(), page_tokens);
  EXPECT_LE(pages * page, memory);
  EXPECT_GT((pages + 1) * page, memory);
  EXPECT_GE(host.footprint().store_bytes[0], pages * page);
  EXPECT_LE(host.footprint().store_bytes[0], pages * page + 6 * 256);
}

TEST(PagedPool, TakesItsShareWithTheTailsOfAllSlots) {
  const Component cache("kv_cache", "paged",
                        {{"pool_memory", 1e-4}, {"format", std::string("int8")}, {"tail", int64_t{24}}});
  const KvCacheHost host(cache, {.rows = 16, .seqs = 4, .slots = 4, .capacity = 256, .layers = 1});
  uint32_t page_tokens = 0;
  const uint64_t pages = host.table().free_pages(host.self(), &page_tokens);
  const uint64_t memory = cache.device().table().memory / 10000, page = uint64_t{page_tokens} * 2 * (8 + 8 + 4);
  EXPECT_GT(pages, 256U);
  EXPECT_LE(host.footprint().store_bytes[0], memory + 6 * 256);
  EXPECT_GT(host.footprint().store_bytes[0] + page, memory);
}

// Caches with windows take their share, too: the windows' pools have their full size, and what
// they leave of the share goes to the others.
TEST(PagedPool, TakesItsShareWithTheWindowsOfAllSlots) {
  const Component cache("kv_cache", "paged", {{"pool_memory", 1e-4}});
  const KvCacheHost host(cache, {.rows = 16, .seqs = 4, .slots = 4, .capacity = 256, .window = 24});
  uint32_t page_tokens = 0;
  const uint64_t pages = host.table().free_pages(host.self(), &page_tokens);
  const uint64_t memory = cache.device().table().memory / 10000, page = uint64_t{page_tokens} * 2 * 2 * (8 + 8);
  EXPECT_GT(pages, 256U);
  EXPECT_LE(host.footprint().store_bytes[0], memory + 6 * 256);
  EXPECT_GT(host.footprint().store_bytes[0] + page, memory);
}

}  // namespace
}  // namespace tenon::test
