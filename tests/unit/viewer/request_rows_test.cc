// The view of requests says this of a trace of known content.
#include "model/request_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/request_trace_text.h"

namespace tenon::view {
namespace {

using testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

class RequestRows : public testing::Test {
 protected:
  // Returns the ids of the requests that are shown.
  std::vector<int64_t> shown(RequestOrder order, RequestFilter filter = RequestFilter::kAll, int64_t min_wait_ns = 0) {
    std::vector<int64_t> ids;
    for (const uint32_t i : request_rows(requests_, order, filter, min_wait_ns)) ids.push_back(requests_.all[i].id);
    return ids;
  }
  static std::vector<std::string> cells(const Table::Row& row) {
    std::vector<std::string> texts;
    for (const Cell& cell : row.cells) texts.push_back(cell.text);
    return texts;
  }

  TraceFile file_ = profiler::read_trace_bytes(test::request_trace_text(), "requests.json");
  Requests requests_ = profiler::requests_of(file_);
};

TEST_F(RequestRows, AreSortedByWhatIsAskedFor) {
  EXPECT_THAT(shown(RequestOrder::kArrival), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(shown(RequestOrder::kWait), ElementsAre(2, 3, 4, 1));
  EXPECT_THAT(shown(RequestOrder::kFirstToken), ElementsAre(3, 1, 2, 4)) << "the last has no token";
  EXPECT_THAT(shown(RequestOrder::kPerToken), ElementsAre(2, 1, 3, 4));
  EXPECT_THAT(shown(RequestOrder::kTokens), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(shown(RequestOrder::kEnd), ElementsAre(3, 1, 2, 4));
}

TEST_F(RequestRows, AreThoseThatPassTheFilter) {
  EXPECT_THAT(shown(RequestOrder::kArrival, RequestFilter::kPreempted), ElementsAre(2));
  EXPECT_THAT(shown(RequestOrder::kArrival, RequestFilter::kOpen), ElementsAre(4));
  EXPECT_THAT(shown(RequestOrder::kArrival, RequestFilter::kCutShort), ElementsAre());
  requests_.all[0].end = "cancelled";
  EXPECT_THAT(shown(RequestOrder::kArrival, RequestFilter::kCutShort), ElementsAre(1));
  EXPECT_THAT(shown(RequestOrder::kArrival, RequestFilter::kAll, 35 * kMs), ElementsAre(2, 3));
  EXPECT_THAT(shown(RequestOrder::kArrival, RequestFilter::kAll, 35 * kMs + 1), ElementsAre(2));
}

TEST_F(RequestRows, TablesSayTheTimesAndTheHolders) {
  EXPECT_EQ(request_summary(requests_), "4 requests, 2 slots; 3 length, 1 open; 1 pre-empted");
  const Table percentiles = percentile_table(requests_);
  ASSERT_EQ(percentiles.rows.size(), 4U);
  EXPECT_THAT(cells(percentiles.rows[0]), ElementsAre("queue", "3", "0.000", "35.000", "35.000", "35.000"));
  EXPECT_THAT(cells(percentiles.rows[2]), ElementsAre("per token", "2", "10.000", "24.000", "24.000", "24.000"));
  const Table holders = holder_table(requests_, 2);
  ASSERT_EQ(holders.rows.size(), 2U);
  EXPECT_THAT(cells(holders.rows[0]), ElementsAre("1", "0", "35.000", "100.0", "41"));
  EXPECT_EQ(file_.name(file_.slices[holders.rows[1].slice]), "req 2");
  const std::string facts = to_text(request_facts(requests_, 1));
  EXPECT_THAT(facts, testing::HasSubstr("prompt\t40 tokens, 16 found in the cache\n"));
  EXPECT_THAT(facts, testing::HasSubstr("pre-empted\tits pages went to req 1\n"));
  EXPECT_THAT(to_text(request_facts(requests_, 2)),
              testing::HasSubstr("waited\t35.0 ms, 25.0 ms of it without a free slot\n"));
}

TEST_F(RequestRows, APartLeadsToItsSteps) {
  const Analysis analysis = analyse(file_);
  ASSERT_EQ(analysis.steps.size(), 13U);
  const std::vector<RequestPart>& parts = requests_.all[1].stays[3].parts;
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_THAT(steps_of(analysis, parts[0]), testing::Pair(10, 11));
  EXPECT_THAT(steps_of(analysis, parts[1]), testing::Pair(11, 13));
  const auto [first, end] = steps_of(analysis, {.first_step = 5, .last_step = -1});
  EXPECT_EQ(first, end) << "the trace does not say the last one";
}

TEST_F(RequestRows, ATraceWithoutRequestsHasNone) {
  const TraceFile file = profiler::read_trace_bytes(
      R"([{"ph":"X","pid":2,"tid":101,"ts":0,"dur":5,"cat":"other","name":"req 1","args":{"request":1}}])", "x.json");
  const Requests none = profiler::requests_of(file);
  EXPECT_TRUE(none.all.empty());
  EXPECT_EQ(cells(percentile_table(none).rows[0]).back(), "-");
}

}  // namespace
}  // namespace tenon::view
