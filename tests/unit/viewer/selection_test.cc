// This tests sums over an area, searches, and tables as text.
#include "model/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_trace.h"

namespace tenon::view {
namespace {

using testing::ElementsAre;

TEST(ViewSelection, SumsWhatLiesInTheArea) {
  const profiler::TraceFile file = made_trace();
  // Step 1 begins at 1010 us; the area cuts its first attention (1010 to 1020) in half and ends within layer 1's GEMV.
  const Table table = sum_area(file, {1'015'000, 1'070'000, 0, 1});
  std::vector<std::string> names;
  for (const Table::Row& row : table.rows) names.push_back(row.cells[0].text);
  EXPECT_THAT(
      names, ElementsAre("ProfilerStep#1", "layers.0.mlp", "layers.1.attention", "layers.0.attention", "layers.1.mlp"));
  EXPECT_EQ(table.rows[0].cells[2].key, 55);
  EXPECT_EQ(table.rows[0].cells[3].key, 100);
  EXPECT_EQ(table.rows[3].cells[2].key, 5);
  EXPECT_NEAR(table.rows[3].cells[5].key, 100 * 5 / 55.0, 1e-9);
  EXPECT_EQ(sum_area(file, {1'015'000, 1'070'000, 0, 2}).rows[1].cells[1].key, 2) << "both threads";
  EXPECT_TRUE(sum_area(file, {5'000'000, 6'000'000, 0, 2}).rows.empty());
}

TEST(ViewSelection, SearchLooksAtNamesAndArguments) {
  const profiler::TraceFile file = made_trace();
  EXPECT_EQ(search(file, "ATTENTION").size(), 32U);
  EXPECT_EQ(search(file, "sampler.greedy").size(), 8U);
  EXPECT_EQ(search(file, "profilerstep").size(), 9U);
  EXPECT_EQ(search(file, " w3").size(), 1U);
  EXPECT_TRUE(search(file, "no such thing").empty());
  EXPECT_TRUE(search(file, "").empty());
  const auto found = search(file, "sampler");
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_LE(file.slices[found[i - 1]].begin_ns, file.slices[found[i]].begin_ns);
  }
}

TEST(ViewTable, SortsAndBecomesText) {
  Table table{{{"name", false}, {"n"}},
              {{{text_cell("b\tc"), number_cell(2, 0)}},
               {{text_cell("a"), number_cell(kUnknown, 0)}},
               {{text_cell("c"), number_cell(10, 0)}}}};
  sort_by(table, 1, true);
  EXPECT_EQ(to_text(table), "name\tn\nc\t10\nb c\t2\na\t-\n");
  sort_by(table, 0, false);
  EXPECT_EQ(to_text(table), "name\tn\na\t-\nb c\t2\nc\t10\n");
}

TEST(ViewTable, TimesAndBytesHaveThreeDigits) {
  EXPECT_EQ(duration_text(999), "999 ns");
  EXPECT_EQ(duration_text(1'234), "1.23 us");
  EXPECT_EQ(duration_text(45'678'000), "45.7 ms");
  EXPECT_EQ(duration_text(3'000'000'000), "3.00 s");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(999'900), "1.00 MB");
  EXPECT_EQ(bytes_text(4.65e12), "4.65 TB");
}

}  // namespace
}  // namespace tenon::view
