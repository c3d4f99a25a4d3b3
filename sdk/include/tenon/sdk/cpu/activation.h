// SiLU without branches or library calls, so that compilers make vectors of it and every machine gets the same bits.
// For code compiled for the base machine only: contraction would change the bits.
#pragma once

#include <cstdint>

namespace tenon::sdk::cpu {

// e^x for x <= 0, relative error below 3e-7; 0 below -87. Range reduction by ln 2 in two parts, Taylor to the 7th
// power.
inline float exp_negative(float x) {
  const float bounded = x > -87.0F ? x : -87.0F;
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
  const float power = __builtin_bit_cast(float, static_cast<uint32_t>(n + 127) << 23);
  return x > -87.0F ? p * power : 0.0F;
}

// a / (1 + e^-a); NaN stays NaN.
inline float silu(float a) {
  const float e = exp_negative(a < 0 ? a : -a);
  return a * ((a < 0 ? e : 1.0F) / (1.0F + e));
}

}  // namespace tenon::sdk::cpu
