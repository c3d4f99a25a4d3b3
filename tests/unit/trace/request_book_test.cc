// This tests requests as slices of their slots and of the queue.
#include "request_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

namespace tenon::profiler {
namespace {

using testing::ElementsAre;
using trace::RequestEvent;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

class Requests : public testing::Test {
 protected:
  void add(int64_t ns, RequestEvent event, uint64_t id, std::initializer_list<uint64_t> values = {},
           std::string_view text = {}) {
    book_.add({.request = event, .begin_ns = ns, .id = id, .values = {values.begin(), values.size()}, .text = text});
  }
  // These add the events of the engine, with times in nanoseconds.
  void arrive(int64_t ns, uint64_t id, uint64_t before = 0) { add(ns, RequestEvent::kArrived, id, {before, 40, 1}); }
  void admit(int64_t ns, uint64_t id, uint64_t slot, uint64_t cached = 0) {
    add(ns, RequestEvent::kAdmitted, id, {slot, 40, cached});
  }
  void prompt(int64_t from, int64_t to, uint64_t id, uint64_t step, uint64_t rows) {
    add(to, RequestEvent::kPrompt, id, {static_cast<uint64_t>(to - from), step, rows, 7});
  }
  void token(int64_t ns, uint64_t id, uint64_t step, uint64_t tokens = 1) {
    add(ns, RequestEvent::kToken, id, {step, tokens});
  }
  void end(int64_t ns, uint64_t id, uint64_t last_step = 0, uint64_t tokens = 0, std::string_view how = "length") {
    add(ns, RequestEvent::kEnded, id, {last_step, tokens}, how);
  }

  static std::string text_of(const decltype(trace::Arg::value)& value) {
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    if (const auto* number = std::get_if<double>(&value)) return std::to_string(*number).substr(0, 5);
    if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
    return std::to_string(std::get<uint64_t>(value));
  }
  static std::string line_of(const RequestSlice& s) {
    std::string line = (s.lane == RequestSlice::Lane::kQueue ? "queue " : "slot ") + std::to_string(s.index) + ' ' +
                       std::to_string(s.begin_ns) + (s.is_moment ? "!" : "-" + std::to_string(s.end_ns)) + ' ' + s.name;
    for (const trace::Arg& arg : s.args) line += ' ' + arg.name + '=' + text_of(arg.value);
    return line;
  }

  std::vector<std::string> lines_;   // a line for every slice
  std::vector<std::string> places_;  // a line for every outer one: "queue 0 5-8 req 1"
  RequestBook book_{[this](const RequestSlice& s) {
    lines_.push_back(line_of(s));
    if (s.name.starts_with("req ")) places_.push_back(lines_.back().substr(0, lines_.back().find(" request=")));
  }};
};

TEST_F(Requests, ALifeIsAWaitAndAStayWithItsParts) {
  arrive(10, 17, 4);
  admit(20, 17, 3, 16);
  prompt(22, 30, 17, 5, 8);
  prompt(31, 40, 17, 6, 16);
  token(40, 17, 6);
  end(90, 17, 9, 4);
  book_.decide(kAll, kAll);
  EXPECT_THAT(
      lines_,
      ElementsAre("queue 0 6-20 req 17 request=17 prompt=40 priority=1 waited_us=0.014",
                  "slot 3 20-90 req 17 request=17 prompt=40 tokens=40 cached=16 first_step=5 last_step=9 "
                  "generated=4 end=length",
                  "slot 3 22-30 prompt request=17 step=5 rows=8 from=7",
                  "slot 3 31-40 prompt request=17 step=6 rows=16 from=7", "slot 3 40! first token request=17 step=6",
                  "slot 3 40-90 decode request=17 first_step=7 last_step=9 tokens=3",
                  "slot 3 90! ended: length request=17"));
  EXPECT_EQ(book_.dropped(), 0U);
}

TEST_F(Requests, APreemptionSaysWhatWasLostAndToWhom) {
  arrive(0, 1);
  admit(0, 1, 0);
  prompt(0, 5, 1, 0, 40);
  token(5, 1, 0);
  add(20, RequestEvent::kPreempted, 1, {2, 3, 9}, "pages");
  admit(30, 1, 2, 32);
  prompt(31, 35, 1, 4, 11);
  token(35, 1, 4, 4);
  add(36, RequestEvent::kPreempted, 1, {4, 4, 0}, "room");
  end(50, 1, 6, 4, "cancelled");
  book_.decide(kAll, kAll);
  EXPECT_THAT(lines_,
              ElementsAre("queue 0 0-0 req 1 request=1 prompt=40 priority=1 waited_us=0.000",
                          "slot 0 0-20 req 1 request=1 prompt=40 tokens=40 cached=0 first_step=0 last_step=2 "
                          "generated=3 end=pre-empted lost=pages taker=9",
                          "slot 0 0-5 prompt request=1 step=0 rows=40 from=7", "slot 0 5! first token request=1 step=0",
                          "slot 0 5-20 decode request=1 first_step=1 last_step=2 tokens=2",
                          "slot 0 20! pre-empted for req 9 request=1",
                          "queue 0 20-30 req 1 request=1 prompt=40 priority=1 after=pre-emption waited_us=0.010",
                          "slot 2 30-36 req 1 request=1 prompt=40 tokens=40 cached=32 first_step=4 last_step=4 "
                          "generated=4 end=pre-empted lost=room",
                          "slot 2 31-35 prompt request=1 step=4 rows=11 from=7", "slot 2 36! pre-empted request=1",
                          "queue 0 36-50 req 1 request=1 prompt=40 priority=1 after=pre-emption end=cancelled "
                          "waited_us=0.014",
                          "queue 0 50! ended: cancelled request=1"));
}

TEST_F(Requests, ARestLiesWithinDecoding) {
  arrive(0, 1);
  admit(0, 1, 0);
  prompt(0, 5, 1, 0, 40);
  token(5, 1, 0);
  add(30, RequestEvent::kRested, 1, {12, 4, 6});
  end(50, 1, 9, 7);
  book_.decide(kAll, kAll);
  EXPECT_THAT(lines_, testing::IsSupersetOf({"slot 0 18-30 rest request=1 first_step=4 last_step=6",
                                             "slot 0 5-50 decode request=1 first_step=1 last_step=9 tokens=6"}));
  EXPECT_EQ(book_.dropped(), 0U);
}

TEST_F(Requests, WhatIsOpenEndsWithTheTrace) {
  arrive(0, 1);
  admit(2, 1, 0);
  prompt(3, 4, 1, 0, 40);
  token(4, 1, 0);
  arrive(5, 2);
  book_.close(9);
  EXPECT_THAT(lines_, ElementsAre("queue 0 0-2 req 1 request=1 prompt=40 priority=1 waited_us=0.002",
                                  "slot 0 2-9 req 1 request=1 prompt=40 tokens=40 cached=0 open_at_end=1",
                                  "slot 0 3-4 prompt request=1 step=0 rows=40 from=7",
                                  "slot 0 4! first token request=1 step=0", "slot 0 4-9 decode request=1 first_step=1",
                                  "queue 0 5-9 req 2 request=2 prompt=40 priority=1 open_at_end=1 waited_us=0.004"));
}

TEST_F(Requests, ThoseThatWaitShareTracksWhereTheyCan) {
  arrive(0, 1);
  arrive(1, 2);
  admit(5, 1, 0);
  arrive(6, 3);
  admit(8, 2, 1);
  admit(9, 3, 2);
  book_.decide(kAll, kAll);
  EXPECT_THAT(places_, ElementsAre("queue 0 0-5 req 1", "queue 1 1-8 req 2", "queue 0 6-9 req 3"));
}

// Ten thousand requests come at once and run one after the other.
TEST_F(Requests, ALongQueueHasFewTracksAndItsSlicesDoNotOverlap) {
  constexpr uint64_t kRequests = 10'000;
  std::vector<RequestSlice> waits;
  RequestBook book([&](const RequestSlice& s) {
    if (s.lane == RequestSlice::Lane::kQueue && !s.is_moment) waits.push_back(s);
  });
  const auto add = [&](int64_t ns, RequestEvent event, uint64_t id) {
    book.add({.request = event, .begin_ns = ns, .id = id});
  };
  for (uint64_t id = 0; id < kRequests; ++id) add(static_cast<int64_t>(id), RequestEvent::kArrived, id);
  for (uint64_t id = 0; id < kRequests; ++id) {
    const auto ns = static_cast<int64_t>(kRequests + 10 * id);
    add(ns, RequestEvent::kAdmitted, id);
    add(ns + 10, RequestEvent::kEnded, id);
    book.decide(kAll, kAll);
  }
  ASSERT_EQ(waits.size(), kRequests);
  std::vector<int64_t> ends(RequestBook::kMaxQueueLanes, 0);
  for (const RequestSlice& wait : waits) {
    ASSERT_LT(wait.index, RequestBook::kMaxQueueLanes);
    ASSERT_GE(wait.begin_ns, ends[wait.index]);
    ends[wait.index] = wait.end_ns;
  }
  EXPECT_EQ(line_of(waits.back()).substr(0, 8), "queue 15");
  EXPECT_EQ(text_of(waits.back().args.back().value), "99.99") << "the wait in microseconds, not what is drawn of it";
}

TEST_F(Requests, OnlyThoseOfStepsThatAreRecordedAreKept) {
  arrive(0, 1);
  admit(10, 1, 0);
  end(20, 1);
  book_.decide(25, -1);
  EXPECT_THAT(places_, ElementsAre()) << "no step was recorded";
  arrive(21, 2);
  admit(40, 2, 0);
  arrive(50, 3);
  admit(60, 3, 1);
  end(70, 3);
  end(90, 2);
  book_.decide(65, 45);
  EXPECT_THAT(places_, ElementsAre("queue 0 21-40 req 2"));
  book_.decide(100, 45);
  EXPECT_THAT(places_, ElementsAre("queue 0 21-40 req 2", "slot 0 40-90 req 2"));
  arrive(95, 4);
  book_.close(100);
  EXPECT_EQ(places_.size(), 2U);
}

TEST_F(Requests, WhatHasLostItsBeginningIsCountedAndLeftOut) {
  end(5, 1);
  prompt(5, 6, 2, 0, 1);
  arrive(6, 3);
  token(7, 3, 0);
  add(8, RequestEvent::kPreempted, 3);
  admit(9, 3, 0);
  admit(10, 3, 0);
  end(20, 3);
  book_.close(30);
  EXPECT_THAT(places_, ElementsAre("queue 0 6-9 req 3", "slot 0 9-20 req 3"));
  EXPECT_EQ(book_.dropped(), 5U);
}

// The end of the first request was lost, and another one has its slot.
TEST_F(Requests, ASlotHasOneRequestAtATime) {
  arrive(0, 1);
  admit(1, 1, 0);
  prompt(2, 3, 1, 0, 1);
  arrive(4, 2);
  admit(5, 2, 0);
  end(9, 2);
  book_.close(12);
  EXPECT_THAT(places_, ElementsAre("queue 0 0-1 req 1", "queue 0 4-5 req 2", "slot 0 5-9 req 2", "slot 0 9-12 req 1"));
}

}  // namespace
}  // namespace tenon::profiler
