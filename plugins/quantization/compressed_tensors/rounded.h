// This is a matrix of int8 whose x becomes int8, too: format "int-quantized" with input_activations of 8 bits, dynamic,
// symmetric and a scale a token.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../published/matrix.h"

namespace tenon::compressed_tensors {

// Says whether the file wants x of its quantized matrices rounded. Throws Refused if config.json cannot be read.
bool rounds_x(const tenon_linear& s);

class RoundedMatrix {
 public:
  // The tensors are in the order of rows::kWeight and rows::kScale. Throws Refused for others, and for another way of
  // rounding x.
  RoundedMatrix(const tenon_linear& s, uint32_t mat);
  // Returns the rows' scales, of the whole tensor. Throws Failed, with its name, for one that is not finite.
  std::vector<float> scales(const tenon_slice& stored) const;

 private:
  std::string name_;
  uint64_t rows_;
  tenon_format format_;
  bool one_scale_;  // it is that of all rows
};

// This is a site of such matrices, which Base holds as rows of int8.
template <class Base>
struct RoundedSite : Base {
  RoundedSite(Base&& bound, const tenon_linear& s) : Base(std::move(bound)) {
    for (uint32_t i = 0; i < s.n_mats; ++i) rounded.emplace_back(s, i);
  }
  std::vector<RoundedMatrix> rounded;  // by matrix of an expert
};

}  // namespace tenon::compressed_tensors
