// This is a matrix of int8 whose x becomes int8, too: format "int-quantized" with input_activations of 8 bits, dynamic,
// symmetric and a scale a token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../published/rounded.h"
#include "../rows/stored_rows.h"
#include "tenon/sdk/params.h"

namespace tenon::compressed_tensors {

// Says whether the file wants x of its quantized matrices rounded. Throws Refused if config.json cannot be read.
struct Choice {
  explicit Choice(const sdk::Params&) {}
  bool rounds_x(const tenon_linear& s) const;
};

// It is one of published/rounded.h, with tensors in the order of rows::kWeight and rows::kScale.
class RoundedMatrix {
 public:
  RoundedMatrix(const tenon_linear& s, uint32_t mat);
  uint32_t weights() const { return rows::kWeight; }
  std::vector<float> scales(size_t expert, const published::ReadTensor& read) const;

 private:
  std::vector<std::string> names_;  // by expert
  uint64_t rows_;
  tenon_format format_;
  bool one_scale_;  // it is that of all rows
};

}  // namespace tenon::compressed_tensors
