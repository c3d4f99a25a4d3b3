// These are matrices of integers in groups along the row whose zero points are no integers: a weight stands for scale *
// code + offset, both in f32. HQQ's and torchao's int4 differ in where the numbers lie; the base class does the rest.
#pragma once

#include <span>

#include "matrix.h"
#include "paired_codings.h"

namespace tenon::published {

class PairedMatrix : public Matrix {
 public:
  void take_rows(const tenon_rows& src, const Put& put) override {
    check(src);
    const Numbers numbers = numbers_of(src);
    const uint32_t n = columns_ / held_group_, held_of_file = group_ / held_group_;
    std::vector<uint8_t> codes(columns_);
    std::vector<float> pairs(size_t{2} * n);  // (scale, offset) by group
    for (uint64_t row = 0; row < rows_; ++row) {
      take_codes(src, row, codes.data());
      for (uint32_t g = 0; g < n;) {
        const Pair pair = pair_of(numbers, row, g / held_of_file);
        for (const uint32_t end = g + held_of_file; g < end; ++g) {
          pairs[size_t{2} * g] = pair.scale;
          pairs[size_t{2} * g + 1] = pair.offset;
        }
      }
      put(row, {codes.data(), pairs.data()});
    }
  }

 protected:
  struct Pair {
    float scale, offset;
  };
  struct Numbers {
    Floats scales, zeros;
  };
  static constexpr uint32_t kLeastGroup = 32;

  using Matrix::Matrix;

  // `group` is the file's, a multiple of 32 that divides the columns.
  void choose_coding(std::span<const coded::Coding> codings, uint32_t bits, uint32_t group) {
    group_ = group;
    held_group_ = group % 64 == 0 ? 64 : kLeastGroup;
    while (codings[coding_].scaling != coded::Scaling::kOffset || codings[coding_].bits != bits ||
           codings[coding_].group != held_group_) {
      ++coding_;
    }
  }

  // Throws sdk::Failed for numbers beside the codes that say something else.
  virtual void check(const tenon_rows& /*src*/) const {}
  // Fills codes (columns).
  virtual void take_codes(const tenon_rows& src, uint64_t row, uint8_t* codes) const = 0;
  virtual Numbers numbers_of(const tenon_rows& src) const = 0;
  // Throws sdk::Failed for numbers that are not finite. group: of the file, within the row.
  virtual Pair pair_of(const Numbers& numbers, uint64_t row, uint64_t group) const = 0;

  uint32_t group_ = 0;

 private:
  uint32_t held_group_ = 0;
};

}  // namespace tenon::published
