// SiLU has no branches or library calls here, so that compilers make vectors of it and all machines get the same bits.
// Every source has its own copy, for its own instruction set; contraction would change the bits.
#pragma once

#include <cstdint>

namespace tenon::sdk::cpu {
namespace {

// Returns e^-|x| with a relative error below 3e-7; for NaN and beyond 87 it is that of 87. The range is
// reduced by ln 2 in two parts, and Taylor's series goes to the 7th power. Choices are made on bits, which is
// what lets compilers do without a branch.
inline float exp_of_minus(float x) {
  const uint32_t size = __builtin_bit_cast(uint32_t, x) & 0x7fffffff, most = __builtin_bit_cast(uint32_t, 87.0F);
  const float bounded = -__builtin_bit_cast(float, size < most ? size : most);
  const auto n = static_cast<int32_t>(bounded * 0x1.715476p+0F - 0.5F);  // to nearest: truncation rounds up here
  const auto m = static_cast<float>(n);
  const float r = (bounded - m * 0x1.62e4p-1F) - m * 0x1.7f7d1cp-20F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = (p * r * r + r) + 1.0F;
  return p * __builtin_bit_cast(float, static_cast<uint32_t>(n + 127) << 23);
}

// Returns a / (1 + e^-a); NaN stays NaN.
inline float silu(float a) {
  const float e = exp_of_minus(a);
  const uint32_t below = 0U - (__builtin_bit_cast(uint32_t, a) >> 31);
  const uint32_t bits = (__builtin_bit_cast(uint32_t, e) & below) | (__builtin_bit_cast(uint32_t, 1.0F) & ~below);
  return a * (__builtin_bit_cast(float, bits) / (1.0F + e));
}

}  // namespace
}  // namespace tenon::sdk::cpu
