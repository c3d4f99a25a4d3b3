// GELU has no branches or library calls, as SiLU (activation.h): compilers make vectors of it, and every machine gets
// the same bits.
#pragma once

#include "tenon/sdk/cpu/activation.h"

namespace tenon::sdk::cpu {
namespace {

// Returns a / 2 (1 + tanh(v)) for v = sqrt(2 / pi) (a + 0.044715 a^3), which is a / (1 + e^-2v); NaN stays NaN.
// Hendrycks and Gimpel 2016, arXiv:1606.08415.
inline float gelu(float a) {
  constexpr float kTwiceSlope = 1.5957691216057308F, kCubic = 0.044715F;
  const float v = kTwiceSlope * (a + kCubic * a * a * a), e = exp_of_minus(v);
  const uint32_t below = 0U - (__builtin_bit_cast(uint32_t, v) >> 31);
  const uint32_t bits = (__builtin_bit_cast(uint32_t, e) & below) | (__builtin_bit_cast(uint32_t, 1.0F) & ~below);
  return a * (__builtin_bit_cast(float, bits) / (1.0F + e));
}

}  // namespace
}  // namespace tenon::sdk::cpu
