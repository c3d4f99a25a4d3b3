// A product has x as 8-bit floats: each number becomes the scale times the number of e4m3 that is nearest to x / scale.
// It is for the host and, with relaxed constexpr, for CUDA.
#pragma once

#include <cstdint>

#include "tenon/sdk/recorder.h"

namespace tenon::fp8 {

// A product leaves x as it is, rounds it by a scale a row, by one for each group of a row's columns, or by the scale
// that the file has for a matrix.
enum class Activations { kF32, kToken, kBlock, kStatic };

// A product of a site does this with x.
struct Rounding {
  Activations by = Activations::kF32;
  uint32_t group = 0;          // kBlock: a scale is of so many columns, of fewer at the end of a row; else 0
  bool powers_of_two = false;  // kBlock: a scale becomes the power of two that is not below it
};

// These are in an anonymous namespace, since sources of several instruction sets call them.
namespace {

// Returns the number of e4m3 nearest to x, halfway the one with the even code; beyond 448 that or -448. NaN stays NaN.
constexpr float nearest_e4m3(float x) {
  constexpr float kLargest = 448;
  constexpr uint32_t kExponent = 0x7f800000, kLeastNormal = (127 - 6) << 23;
  float magnitude = x < 0 ? -x : x;
  magnitude = magnitude > kLargest ? kLargest : magnitude;
  // Numbers of one power of two are whole multiples of its eighth, and those below 2^-6 of 2^-9. What is added to 2^23
  // of these steps is rounded to whole ones.
  uint32_t power = __builtin_bit_cast(uint32_t, magnitude) & kExponent;
  power = power < kLeastNormal ? kLeastNormal : power;
  const auto steps = __builtin_bit_cast(float, power + (20U << 23));
  const float rounded = (magnitude + steps) - steps;
  return x < 0 ? -rounded : rounded;
}
// An x that is not finite answers NaN.
constexpr float rounded_by(float scale, float x) {
  return nearest_e4m3(x / scale) * scale + (x - x);
}
// Returns the scale of a row, or of a group of its columns, by its largest magnitude. Zeros have a scale of 1 and stay
// zeros.
constexpr float row_scale(float largest) {
  const float scale = largest / 448;
  return scale > 0 ? scale : 1;
}
// Returns the least power of two that is not below a scale: "ue8m0", a float of exponents alone. One that is not finite
// stays as it is. Powers below 2^-126, which is the least that has all of its bits, become that.
constexpr float power_of_two_from(float scale) {
  constexpr uint32_t kMantissa = (1U << 23) - 1, kLeastNormal = 1U << 23, kInfinite = 0xffU << 23;
  const auto bits = __builtin_bit_cast(uint32_t, scale);
  if (bits >= kInfinite) return scale;
  return __builtin_bit_cast(float, bits <= kLeastNormal ? kLeastNormal : (bits + kMantissa) & ~kMantissa);
}

}  // namespace

// An op rounds rows of x, after RMSNorm where that was claimed. It makes (rows, parts, k): each part has a scale of its
// own; a row that has scales of its own has one part.
struct RoundArgs {
  uint32_t k, rows, parts;
  uint32_t experts;        // so many have sets of scales; 0: there is one
  uint32_t has_norm;       // 1: operand kRoundedNorm is RMSNorm's weights, f32[k]
  uint32_t has_scales;     // 1: operand kRoundedScales is f32[sets][parts]; 0: each group of each row has a scale
  float eps;               // RMSNorm adds it to the mean of the squares
  uint32_t group;          // a scale is of so many columns of a row, at least 1; k: of the whole row
  uint32_t powers_of_two;  // 1: scales become powers of two
  uint32_t reserved;
  int64_t x_stride;  // floats
};
// Returns the scale of a group by its largest magnitude.
constexpr float group_scale(const RoundArgs& a, float largest) {
  const float scale = row_scale(largest);
  return a.powers_of_two != 0 ? power_of_two_from(scale) : scale;
}
// The op has these operands. From kRoundedNorm on kRoundedLive stands in the place of those that the arguments do not
// have; the rows' experts, kRoundedExpert, are there if the site is routed and has scales.
enum RoundOperand : uint32_t {
  kRounded,
  kRoundedX,
  kRoundedLive,
  kRoundedNorm,
  kRoundedScales,
  kRoundedExpert,
  kRoundOperands
};
struct RoundPointers {
  const float *x, *norm, *scales;  // norm, scales, expert: or nullptr
  const int32_t* expert;
  const uint32_t* live;
  float* to;
};
// Launch is sdk::Part or cuda::Launch.
template <class Launch>
RoundPointers round_pointers(const RoundArgs& a, const Launch& launch) {
  RoundPointers p{};
  p.to = launch.template ptr<float>(kRounded);
  p.x = launch.template ptr<const float>(kRoundedX);
  p.live = launch.template ptr<const uint32_t>(kRoundedLive);
  if (a.has_norm != 0) p.norm = launch.template ptr<const float>(kRoundedNorm);
  if (a.has_scales != 0) p.scales = launch.template ptr<const float>(kRoundedScales);
  if (a.has_scales != 0 && a.experts != 0) p.expert = launch.template ptr<const int32_t>(kRoundedExpert);
  return p;
}

// For calibration an op finds the largest magnitude of x.
struct LargestArgs {
  uint32_t k, rows;
  uint32_t places;   // the largest x of all rows is written so many times: experts have one scale
  int64_t x_stride;  // floats
};
enum LargestOperand : uint32_t { kLargest, kLargestX, kLargestLive, kLargestOperands };

}  // namespace tenon::fp8
