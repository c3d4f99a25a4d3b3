#include "model/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace tenon::view {
namespace {

std::string printed(const char* format, int decimals, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, decimals, value);
  return text.data();
}

std::string three_digits(double value, const char* unit) {
  const double size = std::abs(value);
  return printed("%.*f ", size >= 100 ? 0 : size >= 10 ? 1 : 2, value) + unit;
}

}  // namespace

void sort_by(Table& table, size_t column, bool descending) {
  if (column >= table.columns.size()) return;
  const bool is_number = table.columns[column].is_number;
  std::ranges::stable_sort(table.rows, [&](const Table::Row& a, const Table::Row& b) {
    const Cell &x = a.cells[column], &y = b.cells[column];
    if (!is_number) return descending ? y.text < x.text : x.text < y.text;
    if (std::isnan(x.key) || std::isnan(y.key)) return std::isnan(y.key) && !std::isnan(x.key);
    return descending ? y.key < x.key : x.key < y.key;
  });
}

std::string to_text(const Table& table) {
  std::string text;
  const auto add = [&](const std::string& cell, bool last) {
    std::string plain = cell;
    std::ranges::replace_if(
        plain, [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
    text += plain + (last ? '\n' : '\t');
  };
  for (size_t i = 0; i < table.columns.size(); ++i) add(table.columns[i].name, i + 1 == table.columns.size());
  for (const Table::Row& row : table.rows) {
    for (size_t i = 0; i < row.cells.size(); ++i) add(row.cells[i].text, i + 1 == row.cells.size());
  }
  return text;
}

Cell text_cell(std::string text) {
  return {.text = std::move(text)};
}

Cell number_cell(double value, int decimals) {
  return {.text = std::isnan(value) ? "-" : printed("%.*f", decimals, value), .key = value};
}

std::string duration_text(int64_t ns) {
  const auto value = static_cast<double>(ns);
  const double size = std::abs(value);
  if (size < 1e3) return std::to_string(ns) + " ns";
  if (size < 1e6) return three_digits(value / 1e3, "us");
  if (size < 1e9) return three_digits(value / 1e6, "ms");
  return three_digits(value / 1e9, "s");
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 4> kUnits{"kB", "MB", "GB", "TB"};
  if (std::abs(bytes) < 1e3) return printed("%.*f B", 0, bytes);
  size_t unit = 0;
  for (bytes /= 1e3; std::abs(bytes) >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1e3;
  return three_digits(bytes, kUnits[unit]);
}

}  // namespace tenon::view
