// The requests of a trace of known content have these statistics.
#include "tenon/profiler/request_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/request_trace_text.h"

namespace tenon::profiler {
namespace {

using testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

Requests known() {
  static const TraceFile file = read_trace_bytes(test::request_trace_text(), "requests.json");
  return requests_of(file);
}

TEST(RequestStats, PutsALifeTogether) {
  const Requests requests = known();
  ASSERT_EQ(requests.all.size(), 4U);
  EXPECT_EQ(requests.slots, 2);
  const RequestLife& second = requests.all[1];
  EXPECT_EQ(second.id, 2);
  EXPECT_EQ(second.prompt, 40);
  EXPECT_EQ(second.cached, 16);
  EXPECT_EQ(second.generated, 6);
  EXPECT_EQ(second.end, "length");
  ASSERT_EQ(second.stays.size(), 4U);
  EXPECT_EQ(second.stays[1].slot, 1);
  EXPECT_EQ(second.stays[1].lost, "pages");
  EXPECT_EQ(second.stays[1].taker, 1);
  EXPECT_EQ(second.stays[1].tokens, 42);
  EXPECT_TRUE(second.stays[2].again);
  ASSERT_EQ(second.stays[1].parts.size(), 2U);
  EXPECT_TRUE(second.stays[1].parts[0].is_prompt);
  EXPECT_EQ(second.stays[1].parts[0].rows, 24);
  EXPECT_EQ(second.stays[1].parts[1].first_step, 1);
  EXPECT_EQ(second.stays[1].parts[1].last_step, 2);
}

// It lies within the slice of its decoding, which is the whole time's.
TEST(RequestStats, ARestIsNoPartOfItsOwn) {
  std::string text = test::request_trace_text();
  text.insert(text.rfind("]}"), R"(,{"ph":"X","pid":2,"tid":101,"ts":50000,"dur":20000,"cat":"request_rest",)"
                                R"("name":"rest","args":{"request":1,"first_step":5,"last_step":6}})");
  const TraceFile file = read_trace_bytes(text, "requests.json");
  const Requests requests = requests_of(file);
  const RequestStay& stay = requests.all[0].stays[1];
  ASSERT_EQ(stay.rests.size(), 1U);
  EXPECT_EQ(stay.rests[0].begin_ns, 50 * kMs);
  EXPECT_EQ(stay.rests[0].end_ns, 70 * kMs);
  EXPECT_EQ(stay.rests[0].first_step, 5);
  EXPECT_EQ(stay.rests[0].last_step, 6);
  EXPECT_EQ(stay.parts.size(), 2U);
  EXPECT_EQ(requests.all[0].token_ns(), known().all[0].token_ns());
}

TEST(RequestStats, TimesCountFromTheArrival) {
  const Requests requests = known();
  const RequestLife &first = requests.all[0], &second = requests.all[1], &third = requests.all[2];
  EXPECT_EQ(first.queue_ns(), 0);
  EXPECT_EQ(first.first_token_took_ns(), 10 * kMs);
  EXPECT_EQ(first.token_ns(), 90 * kMs / 9);
  EXPECT_EQ(first.total_ns(), 100 * kMs);
  EXPECT_EQ(second.queue_ns(), 0);
  EXPECT_EQ(second.waited_ns(), 70 * kMs);
  EXPECT_EQ(second.token_ns(), (130 - 10) * kMs / 5);
  EXPECT_EQ(third.arrived_ns, 5 * kMs) << "its wait is drawn shorter than it was";
  EXPECT_EQ(third.queue_ns(), 35 * kMs);
  EXPECT_EQ(third.token_ns(), kNoTime) << "one token has no time between tokens";
  EXPECT_EQ(requests.all[3].total_ns(), kNoTime) << "it is open at the end";
  EXPECT_EQ(requests.all[3].queue_ns(), kNoTime) << "it never had a slot";
  EXPECT_EQ(requests.all[3].end, "");
}

TEST(RequestStats, PercentilesAreOfThoseThatHaveTheTime) {
  const std::array<RequestPercentiles, 4> p = request_percentiles(known());
  EXPECT_STREQ(p[0].what, "queue");
  EXPECT_EQ(p[0].requests, 3U);
  EXPECT_EQ(p[0].p50_ns, 0);
  EXPECT_EQ(p[0].p99_ns, 35 * kMs);
  EXPECT_EQ(p[1].requests, 3U);
  EXPECT_EQ(p[1].max_ns, 40 * kMs);
  EXPECT_EQ(p[2].requests, 2U);
  EXPECT_EQ(p[2].p50_ns, 10 * kMs);
  EXPECT_EQ(p[2].p90_ns, 24 * kMs);
  EXPECT_EQ(p[3].p50_ns, 100 * kMs);
}

TEST(RequestStats, HoldersAreThoseThatHadASlotDuringItsWaits) {
  const RequestWait wait = who_ran_meanwhile(known(), 2);
  ASSERT_EQ(wait.holders.size(), 2U);
  EXPECT_EQ(wait.holders[0].request, 0U);
  EXPECT_EQ(wait.holders[0].overlap_ns, 35 * kMs);
  EXPECT_EQ(wait.holders[1].request, 1U);
  EXPECT_EQ(wait.holders[1].slot, 1);
  EXPECT_EQ(wait.holders[1].overlap_ns, 25 * kMs);
  EXPECT_EQ(wait.holders[1].tokens, 42) << "what it had when it was pre-empted";
  EXPECT_EQ(wait.waited_ns, 35 * kMs);
  EXPECT_EQ(wait.no_slot_ns, 25 * kMs) << "then a slot was free, and there were no pages";
}

// Several processes that were merged, each with a request 1.
TEST(RequestStats, RequestsOfTwoProcessesAreNotOne) {
  std::string text = "[";
  for (const char* pid : {"2", "12"}) {
    text += std::string(R"({"ph":"X","pid":)") + pid +
            R"(,"tid":101,"ts":0,"dur":5,"cat":"request","name":"req 1","args":{"request":1}},)";
  }
  text.back() = ']';
  const TraceFile file = read_trace_bytes(text, "two.json");
  EXPECT_EQ(requests_of(file).all.size(), 2U);
}

// Where steps are kept, the wait of a request may lie before all of them.
TEST(RequestStats, ARequestWithoutItsArrivalHasNoTimesFromIt) {
  const TraceFile file = read_trace_bytes(
      R"([{"ph":"X","pid":2,"tid":101,"ts":0,"dur":5,"cat":"request","name":"req 1","args":{"request":1,"end":"length"}}])",
      "cut.json");
  const Requests requests = requests_of(file);
  ASSERT_EQ(requests.all.size(), 1U);
  EXPECT_EQ(requests.all[0].total_ns(), kNoTime);
  EXPECT_EQ(requests.all[0].end, "length");
}

TEST(RequestStats, AbsurdValuesBreakNothing) {
  for (const char* value : {"-1e300", "1e300", "9223372036854775807", "\"x\"", "null"}) {
    std::string text = test::request_trace_text();
    for (const std::string key : {"\"waited_us\":", "\"request\":", "\"step\":", "\"rows\":"}) {
      const size_t at = text.find(key) + key.size();
      text.replace(at, text.find_first_of(",}", at) - at, value);
    }
    const TraceFile file = read_trace_bytes(text, "absurd.json");
    const Requests requests = requests_of(file);
    request_percentiles(requests);
    for (uint32_t i = 0; i < requests.all.size(); ++i) who_ran_meanwhile(requests, i);
  }
}

}  // namespace
}  // namespace tenon::profiler
