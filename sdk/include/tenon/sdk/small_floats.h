// These are floats of few bits without infinities: a sign, kExponent bits of exponent and kMantissa bits of mantissa,
// with subnormals, as in "FP8 Formats for Deep Learning" (Micikevicius et al., 2022) and "FP6-LLM" (Xia et al., 2024).
// e4m3 keeps its code of all ones for NaN; the others have numbers alone. The host uses this and, with relaxed
// constexpr, CUDA.
#pragma once

#include <cstdint>

#include "tenon/sdk/convert.h"

namespace tenon::sdk {

template <uint32_t kExponent, uint32_t kMantissa>
struct SmallFloat {
  static_assert(kExponent >= 2 && kExponent <= 4 && kMantissa <= 3);
  static constexpr uint32_t kBits = 1 + kExponent + kMantissa;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr bool kHasNan = kExponent == 4 && kMantissa == 3;
  static constexpr uint32_t kTopCode = (1U << (kBits - 1)) - (kHasNan ? 2 : 1);  // the code of the largest number

  // The bits of a code are also those of a half, kShift and kSignShift further up; that half is the value / kUnit.
  static constexpr uint32_t kShift = 10 - kMantissa, kSignShift = 16 - kBits;
  static constexpr uint32_t kHalfMask = ((1U << (kBits - 1)) - 1) << kShift;
  static constexpr float kUnit = 1U << (15 - kBias);

  static constexpr bool is_nan(uint32_t code) { return kHasNan && (code & 0x7fU) == 0x7fU; }
  static constexpr uint16_t half_bits(uint32_t code) {
    return static_cast<uint16_t>((code << kShift & kHalfMask) | (code << kSignShift & 0x8000U));
  }
  // Returns the value of a code that is not NaN.
  static constexpr float value(uint32_t code) { return half_to_float(half_bits(code)) * kUnit; }
  static constexpr float kLargest = half_to_float(static_cast<uint16_t>(kTopCode << kShift)) * kUnit;

  // Returns the code of the nearest value, halfway the even code; beyond kLargest that of kLargest. x is not NaN.
  static constexpr uint32_t nearest(float x) {
    constexpr float kWhole = 8388608;  // 2^23: what is added to it becomes a whole number
    const uint32_t sign = __builtin_bit_cast(uint32_t, x) >> 31;
    float magnitude = sign != 0 ? -x : x;
    if (magnitude > kLargest) magnitude = kLargest;
    int exponent = static_cast<int>(__builtin_bit_cast(uint32_t, magnitude) >> 23) - 127;
    if (exponent < 1 - kBias) exponent = 1 - kBias;
    // Values of this exponent are whole multiples of the step.
    const auto step = __builtin_bit_cast(float, static_cast<uint32_t>(exponent - int{kMantissa} + 127) << 23);
    const float steps = (magnitude / step + kWhole) - kWhole;
    const uint32_t first = static_cast<uint32_t>(exponent + kBias - 1) << kMantissa;
    return sign << (kBits - 1) | (first + static_cast<uint32_t>(steps));
  }
};

}  // namespace tenon::sdk
