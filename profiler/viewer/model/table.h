// A table has rows, which are sorted by any column, drawn, or copied as text.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tenon::view {

struct Cell {
  std::string text;
  double key = 0;  // a column of numbers is sorted by it
  enum class Tone : uint8_t { kPlain, kGood, kBad } tone = Tone::kPlain;
};

struct Table {
  struct Column {
    std::string name;
    bool is_number = true;
  };
  struct Row {
    std::vector<Cell> cells;
    uint32_t slice = UINT32_MAX;  // a click leads to this slice
  };
  std::vector<Column> columns;
  std::vector<Row> rows;
};

void sort_by(Table& table, size_t column, bool descending);
// Returns a line of names, then a line a row. Tabs stand between columns.
std::string to_text(const Table& table);

Cell text_cell(std::string text);
// Shows a dash for what is not a number. NaN sorts last.
Cell number_cell(double value, int decimals);
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Returns "12.3 us", "4.56 ms", "1.23 s": three digits.
std::string duration_text(int64_t ns);
// Returns "12.3 MB" and the like.
std::string bytes_text(double bytes);

}  // namespace tenon::view
