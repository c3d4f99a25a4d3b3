// Requests in time order, and within one nanosecond in an order that every importer can read.
#include "request_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::profiler {
namespace {

using testing::ElementsAre;
using trace::RequestPhase;

constexpr trace::SiteId kLife = 0, kQueued = 1, kPrefill = 2, kFirst = 3;

class Requests : public testing::Test {
 protected:
  void add(int64_t ns, RequestPhase phase, trace::SiteId site, uint64_t id = 7) {
    book_.add({.site = site, .phase = phase, .begin_ns = ns, .id = id});
  }
  void begin(int64_t ns, trace::SiteId site, uint64_t id = 7) { add(ns, RequestPhase::kBegin, site, id); }
  void end(int64_t ns, trace::SiteId site, uint64_t id = 7) { add(ns, RequestPhase::kEnd, site, id); }

  std::vector<std::string> emitted_;
  RequestBook book_{[this](const RequestBook::Entry& e) {
    static constexpr const char* kNames[] = {"life", "queued", "prefill", "first"};
    static constexpr const char* kPhases[] = {"b ", "n ", "e "};
    emitted_.push_back(std::to_string(e.ns) + " " + kPhases[static_cast<size_t>(e.phase)] + kNames[e.site] +
                       (e.id == 7 ? "" : " of " + std::to_string(e.id)) + (e.forced ? " forced" : ""));
  }};
};

// One phase ends where the next begins, and the ring of the thread that begins it may be emptied first.
TEST_F(Requests, WhatEndsComesBeforeWhatBeginsInTheSameNanosecond) {
  begin(10, kLife), begin(10, kQueued);
  begin(20, kPrefill), end(20, kQueued);
  end(30, kPrefill), end(30, kLife);
  book_.close(40);
  EXPECT_THAT(emitted_,
              ElementsAre("10 b life", "10 b queued", "20 e queued", "20 b prefill", "30 e prefill", "30 e life"));
  EXPECT_EQ(book_.dropped(), 0u);
}

// What begins and ends within one nanosecond has its beginning first, whichever was recorded first.
TEST_F(Requests, WhatLastsNoTimeBeginsBeforeItEnds) {
  begin(10, kLife);
  end(20, kQueued), begin(20, kQueued), add(20, RequestPhase::kInstant, kFirst);
  end(30, kLife);
  book_.close(40);
  EXPECT_THAT(emitted_, ElementsAre("10 b life", "20 b queued", "20 n first", "20 e queued", "30 e life"));
  EXPECT_EQ(book_.dropped(), 0u);
}

TEST_F(Requests, TheEndOfTheWholeEndsWhatIsOpenInside) {
  begin(10, kLife), begin(11, kQueued), begin(12, kLife, 8);
  end(20, kLife);
  book_.close(40);
  EXPECT_THAT(emitted_, ElementsAre("10 b life", "11 b queued", "12 b life of 8", "20 e queued forced", "20 e life",
                                    "40 e life of 8 forced"));
}

// What is not older may still be preceded by an event of another ring.
TEST_F(Requests, OnlyWhatIsOlderIsGivenOut) {
  begin(20, kLife), begin(10, kLife, 8);
  book_.emit_until(20);
  EXPECT_THAT(emitted_, ElementsAre("10 b life of 8"));
  end(15, kLife, 8);
  book_.emit_until(21);
  EXPECT_THAT(emitted_, ElementsAre("10 b life of 8", "15 e life of 8", "20 b life"));
}

TEST_F(Requests, AnEndWithoutABeginningIsCountedAndLeftOut) {
  end(10, kLife), begin(20, kLife), end(30, kQueued), end(40, kLife), end(50, kLife);
  book_.close(60);
  EXPECT_THAT(emitted_, ElementsAre("20 b life", "40 e life"));
  EXPECT_EQ(book_.dropped(), 3u);
}

}  // namespace
}  // namespace tenon::profiler
