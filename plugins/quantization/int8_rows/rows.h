// Rows of x become int8 with one scale, and rows of int8 weights become floats. They are for kernels.cc of a scheme's
// folder, which is compiled once for each instruction set.
#pragma once

#include "definition.h"
#include "kernels.h"
#include "tenon/sdk/cpu/products.h"

namespace tenon::int8_rows {
namespace {

using namespace sdk::cpu;

// This is a row as rows/stored_rows.h holds it.
struct Int8Row {
  static constexpr uint32_t kCode = kInt8Row, kElements = 16, kHeader = 4, kColumns = 2;
  static constexpr size_t kBytes = 16;
  static float scale(const uint8_t* row) {
    float s;
    memcpy(&s, row, sizeof(s));
    return s;
  }
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    sink(0, Floats16::decode<TENON_I8>(p));
  }
};

// Returns the block of 32 numbers at x with outliers as zeros; they are in `copy` where the scheme has outliers.
template <Int8Rows Schema>
const float* without_outliers(const float* x, float (&copy)[kInt8Block]) {
  if constexpr (Schema::kOutlier == kNoOutliers) return x;
  // An infinite number is no outlier: its row has no finite products.
  for (uint32_t i = 0; i < kInt8Block; ++i) copy[i] = is_outlier<Schema>(x[i]) && x[i] - x[i] == 0 ? 0 : x[i];
  return copy;
}

// Makes `to` of the k numbers at x. to.scale[0] becomes the row's scale and to.negative32[0] less
// the sum of its q; its other fields are not used. A row with a number that is not finite gets NaN
// for its scale, and so its products are NaN.
template <Int8Rows Schema>
void quantize_x(const float* x, uint32_t k, const sdk::cpu::Int8Row& to) {
  constexpr uint32_t kInfinite = 0x7f800000;
  float copy[kInt8Block];
  uint32_t largest = 0;
  for (uint32_t i = 0; i < k; i += kInt8Block) {
    const uint32_t bits = largest_bits(without_outliers<Schema>(x + i, copy));
    largest = bits > largest ? bits : largest;
  }
  const bool finite = largest < kInfinite;
  const float scale = x_scale<Schema>(__builtin_bit_cast(float, finite ? largest : 0));
  int32_t sum = 0;
  for (uint32_t i = 0; i < k; i += kInt8Block) {
    int32_t half[2] = {};
    if (finite) {
      round_block(without_outliers<Schema>(x + i, copy), inverse_of<Schema>(scale), to.q + i, half);
    } else {
      memset(to.q + i, 0, kInt8Block);
    }
    sum += half[0] + half[1];
  }
  to.scale[0] = finite ? scale : __builtin_nanf("");
  to.negative32[0] = -sum;
}

template <Int8Rows Schema>
constexpr RowOps kOps{&rms_norm, &quantize_x<Schema>, &silu_mul, &split_row};
constexpr RowFormat kFormats[] = {row_format<Int8Row>()};

}  // namespace
}  // namespace tenon::int8_rows
