// These functions convert half precision and bfloat16 to f32, which is exact, and f32 back, rounding
// to the nearest even, one value at a time. NaN stays NaN, and what is too large becomes infinite.
// The results are bit for bit those of F16C.
#pragma once

#include <cstdint>

namespace tenon::sdk {

constexpr float half_to_float(uint16_t h) noexcept {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t quiet = exponent == 31 && fraction != 0 ? 0x400000u : 0;
  const uint32_t biased = exponent == 31 ? 255u : exponent + 112;
  return __builtin_bit_cast(float, sign | biased << 23 | fraction << 13 | quiet);
}

constexpr uint16_t float_to_half(float f) noexcept {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and up
  if (magnitude >= 0x38800000u) {
    const uint32_t odd = (magnitude >> 13) & 1u;
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
  // The result is subnormal: adding 0.5 lines the unit of half precision up with the last bit of f32, and the addition
  // rounds.
  const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, shifted) - 0x3f000000u));
}

constexpr float bf16_to_float(uint16_t b) noexcept {
  return __builtin_bit_cast(float, uint32_t{b} << 16);
}

constexpr uint16_t float_to_bf16(float f) noexcept {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace tenon::sdk
