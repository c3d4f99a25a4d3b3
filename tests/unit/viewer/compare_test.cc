// This tests the comparison of two traces, operation by operation.
#include "model/compare.h"

#include <gtest/gtest.h>

#include "made_trace.h"

namespace tenon::view {
namespace {

TEST(ViewCompare, SaysWhichOperationChanged) {
  const TraceFile a = made_trace(12, 20), b = made_trace(10, 23);
  const Table table = comparison(a, b, Phase::kDecode);
  ASSERT_EQ(table.rows.size(), 4U);
  EXPECT_EQ(table.rows[0].cells[0].text, "(the step)");
  EXPECT_EQ(table.rows[1].cells[0].text, "layers.*.mlp/gemv");
  EXPECT_EQ(table.rows[1].cells[4].key, 6);
  EXPECT_EQ(table.rows[1].cells.back().text, "slower");
  EXPECT_EQ(table.rows[1].cells.back().tone, Cell::Tone::kBad);
  for (const size_t same : {0, 2, 3}) EXPECT_EQ(table.rows[same].cells.back().text, "noise");
  EXPECT_EQ(comparison(a, b, Phase::kAll).rows.size(), 6U);
}

}  // namespace
}  // namespace tenon::view
