// This reads the numbers between two products, whatever the two have agreed on (tenon/sdk/linked_rows.h).
#pragma once

#include <cstddef>

#include "tenon/sdk/linked_rows.h"

namespace tenon {

// Rows before a norm are with its weights, and without the row's power of two. The bytes are those of the whole tensor,
// in host memory; they outlive this.
class LinkedValues {
 public:
  LinkedValues(const tenon_tensor& t, const std::byte* bytes);
  int64_t columns() const { return columns_; }
  float at(int64_t row, int64_t column) const;

 private:
  float element(int64_t index) const;

  const tenon_tensor& t_;
  const std::byte* bytes_;
  int64_t columns_;
};

}  // namespace tenon
