// int8dq, absmax, llm_int8 and matrices of compressed-tensors whose x is rounded to int8 have this in common: a row of
// weights is int8 with one scale, and a row of x becomes int8 while a step runs. A scheme's Schema says how (Int8Rows,
// below), and has its name and its parameters.
// The product of a row of x and a row of weights is
//   (sum of integers, exact) * (scale of x * scale of the weights) + what outliers add.
// In the file X is X.<kWeight> int8 (N, K) and X.weight_scale f32 (N). It is for the host and, with relaxed constexpr,
// for CUDA.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "../rows/stored_rows.h"
#include "tenon/sdk/stored.h"

namespace tenon::int8_rows {

// By this rule rows of weights become int8: the scale of one is its largest magnitude / kSteps, at least
// kLeastScale, and codes lie within [kLeastCode, 127].
template <class S>
concept Int8Rule = requires {
  { S::kSteps } -> std::convertible_to<float>;
  { S::kLeastScale } -> std::convertible_to<float>;
  { S::kLeastCode } -> std::convertible_to<float>;
};
template <class S>
concept Int8Rows = Int8Rule<S> && requires {
  // The codes' tensor has this name, which is each scheme's own.
  { S::kWeight } -> std::convertible_to<const char*>;
  // A row of x has the scale largest magnitude / kXSteps, at least kLeastXScale, and its codes are x times the scale's
  // inverse. kXSteps is 127 or 127.5; of 127.5 the largest magnitude, which is halfway, becomes 127.
  { S::kXSteps } -> std::convertible_to<float>;
  { S::kLeastXScale } -> std::convertible_to<float>;
  // x of this magnitude and above stays out of the integers; infinity: none does.
  { S::kOutlier } -> std::convertible_to<float>;
};

inline constexpr float kNoOutliers = std::numeric_limits<float>::infinity();
inline constexpr int64_t kWidthStep = 32;       // a row's width is a multiple of it
inline constexpr int64_t kMostWidth = 1 << 17;  // so many products of 8 bits fit an int32
inline constexpr uint32_t kTopCode = 127;

// These are in an anonymous namespace, since sources of several instruction sets call them.
namespace {

// It rounds to the nearest whole number, halves to even. steps: within 2^22 of 0.
constexpr float rounded(float steps) {
  constexpr float kWhole = 12582912;  // 1.5 * 2^23
  return (steps + kWhole) - kWhole;
}
// Returns the code of w, whose row has that scale.
template <Int8Rule Schema>
constexpr int weight_code(float w, float scale) {
  const float q = scale > 0 ? rounded(w / scale) : 0;
  return static_cast<int>(q < Schema::kLeastCode ? Schema::kLeastCode : q > kTopCode ? kTopCode : q);
}
template <Int8Rule Schema>
constexpr float weight_scale(float largest) {
  const float scale = largest / Schema::kSteps;
  return scale > Schema::kLeastScale ? scale : Schema::kLeastScale;
}
template <Int8Rows Schema>
constexpr float x_scale(float largest) {
  const float scale = largest / Schema::kXSteps;
  return scale > Schema::kLeastXScale ? scale : Schema::kLeastXScale;
}
// Returns the factor of x: a code of x is x times it, rounded. A scale so small that its inverse overflows belongs to
// numbers that vanish beside any other. With 127.5 steps it is smaller by more than three roundings, of the scale, of
// the inverse and of the product, so that the largest magnitude stays below halfway.
template <Int8Rows Schema>
constexpr float inverse_of(float scale) {
  constexpr float kOne = Schema::kXSteps > kTopCode ? 1 - 0x1p-21F : 1;
  const float inverse = scale > 0 ? kOne / scale : 0;
  return inverse <= std::numeric_limits<float>::max() ? inverse : 0;
}
template <Int8Rows Schema>
constexpr bool is_outlier(float x) {
  return x >= Schema::kOutlier || x <= -Schema::kOutlier;
}

}  // namespace

// Says whether the file has a matrix in tensors of the scheme's own.
template <Int8Rows Schema>
bool has_own_tensors(const tenon_matrix& m) {
  return sdk::find_tensor(m, Schema::kWeight) != nullptr;
}
// Throws Refused for tensors that do not fit together.
template <Int8Rows Schema>
tenon_format need_own_tensors(const tenon_linear& s, uint32_t mat) {
  const int64_t n = s.out_dim[mat];
  const tenon_stored expected[] = {{Schema::kWeight, TENON_I8, 2, {n, s.in_dim, 0, 0}},
                                   {"weight_scale", TENON_F32, 1, {n, 0, 0, 0}}};
  sdk::need_tensors(s.matrix[mat], expected);
  return rows::kInt8Rows;
}
// Throws Refused for a width that integer products do not have.
inline void need_width(const tenon_linear& s) {
  if (s.in_dim % kWidthStep == 0 && s.in_dim > 0 && s.in_dim <= kMostWidth) return;
  throw sdk::Refused("a width of " + std::to_string(s.in_dim) + "; rows of x become int8 in widths of 32 to " +
                     std::to_string(kMostWidth) + ", multiples of 32");
}

}  // namespace tenon::int8_rows
