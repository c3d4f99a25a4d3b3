// Two traces, operation by operation.
#include "model/compare.h"

#include <gtest/gtest.h>

#include "made_trace.h"

namespace tenon::view {
namespace {

TEST(ViewCompare, SaysWhichOperationChanged) {
  const TraceFile a = made_trace(12, 20), b = made_trace(10, 23);
  const Comparison c = compare(analyse(a), analyse(b), Phase::kDecode);
  EXPECT_EQ(c.a_steps, 12U);
  EXPECT_EQ(c.b_steps, 10U);
  ASSERT_EQ(c.ops.size(), 4U);
  for (const OpChange& op : c.ops) {
    const bool moved = op.name == "layers.*.mlp/gemv" || op.name == "(gaps)";
    EXPECT_EQ(op.changed, moved) << op.name;
    EXPECT_EQ(op.b_us - op.a_us, op.name == "(gaps)" ? -6 : moved ? 6 : 0) << op.name;
  }
  EXPECT_FALSE(c.step.changed);
  EXPECT_EQ(to_table(c).rows.size(), 5U);
}

TEST(ViewCompare, WithoutStepsThereIsNothingToCompare) {
  const TraceFile bare =
      profiler::read_trace_bytes(R"([{"ph":"X","pid":1,"tid":1,"ts":0,"dur":1,"name":"a"}])", "bare.json");
  const Comparison c = compare(analyse(bare), analyse(bare), Phase::kAll);
  EXPECT_EQ(c.a_steps, 0U);
  EXPECT_TRUE(to_table(c).rows.empty());
}

// Values from scipy.stats.mannwhitneyu(a, b, method="asymptotic").
TEST(ViewCompare, RankTestGivesKnownValues) {
  EXPECT_NEAR(rank_test({1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}), 0.012185780355344, 1e-9);
  EXPECT_NEAR(rank_test({1, 2, 2, 3, 5, 8}, {2, 4, 4, 6, 9, 9, 10}), 0.09760706947335236, 1e-9);
  EXPECT_EQ(rank_test({1, 1, 1, 1}, {1, 1, 1, 1}), 1);
  EXPECT_EQ(rank_test({1, 2, 3}, {7, 8, 9}), 1);
}

}  // namespace
}  // namespace tenon::view
