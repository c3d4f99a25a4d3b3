// exp and log in f32 with the same bits on every machine and under every instruction set: additions, multiplications
// and divisions only, no fused ones (tenon_add_plugin turns contraction off), no library calls. Forced inline, see
// philox.h.
#pragma once

#include <cstdint>

namespace tenon::sdk::cpu {

// log(m) for m = 1 + d, m in [sqrt(1/2), sqrt(2)): 2 atanh(d / (2 + d)).
[[gnu::always_inline]] constexpr float log_near_one(float d) {
  const float s = d / (2.0F + d), z = s * s;
  const float series = 1.0F / 3 + z * (1.0F / 5 + z * (1.0F / 7 + z * (1.0F / 9)));
  return 2.0F * s + 2.0F * s * z * series;
}

// x = 2^exponent (1 + rest), 1 + rest in [sqrt(1/2), sqrt(2)). x: positive, normal.
struct Binary {
  float exponent, rest;
};
[[gnu::always_inline]] constexpr Binary split_binary(float x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;  // the bits of sqrt(1/2)
  const uint32_t above = __builtin_bit_cast(uint32_t, x) - kRootHalf;
  const int32_t exponent = static_cast<int32_t>(above) >> 23;
  const float m = __builtin_bit_cast(float, (above & 0x7fffffu) + kRootHalf);
  return {static_cast<float>(exponent), m - 1.0F};
}

// Natural logarithm of a positive normal number; relative error below 3e-7.
[[gnu::always_inline]] constexpr float log(float x) {
  const Binary b = split_binary(x);
  return b.exponent * 0x1.62e4p-1F + (b.exponent * 0x1.7f7d1cp-20F + log_near_one(b.rest));
}

// e^x for x <= 0; 0 below -87. Relative error below 3e-7.
[[gnu::always_inline]] constexpr float exp_negative(float x) {
  const float bounded = x > -87.0F ? x : -87.0F;
  const auto n = static_cast<int32_t>(bounded * 0x1.715476p+0F - 0.5F);
  const auto m = static_cast<float>(n);
  const float r = (bounded - m * 0x1.62e4p-1F) - m * 0x1.7f7d1cp-20F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = (p * r * r + r) + 1.0F;
  const float scale = __builtin_bit_cast(float, static_cast<uint32_t>(n + 127) << 23);
  return x > -87.0F ? p * scale : 0.0F;
}

}  // namespace tenon::sdk::cpu
