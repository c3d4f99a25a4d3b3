// A table has columns for people.
#pragma once

#include <string>
#include <vector>

namespace tenon::app {

class Table {
 public:
  // So many columns as `left` says, from the first on, are texts; the others are numbers and stand to the right.
  Table(std::vector<std::string> heads, size_t left) : left_(left), rows_{std::move(heads)} {}
  // Adds a row, which has as many cells as there are heads.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Lines without blanks at their ends.
  std::string text() const;

 private:
  size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tenon::app
