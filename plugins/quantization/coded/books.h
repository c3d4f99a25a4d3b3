// Codes of four bits have these sixteen values: nf4's, fp4's, and those of microscaling formats.
#pragma once

#include <cstdint>

#include "tenon/sdk/small_floats.h"

namespace tenon::coded {

// This is NormalFloat4 (QLoRA, appendix E): quantiles of the normal distribution within [-1, 1], 0 among them.
struct NormalFloat4 {
  static constexpr uint32_t kBits = 4;
  static constexpr float kLargest = 1;
  static constexpr float value(uint32_t code) {
    constexpr float kValues[16] = {-1.F,
                                   -0.6961928009986877F,
                                   -0.5250730514526367F,
                                   -0.39491748809814453F,
                                   -0.28444138169288635F,
                                   -0.18477343022823334F,
                                   -0.09105003625154495F,
                                   0.F,
                                   0.07958029955625534F,
                                   0.16093020141124725F,
                                   0.24611230194568634F,
                                   0.33791524171829224F,
                                   0.44070982933044434F,
                                   0.5626170039176941F,
                                   0.7229568362236023F,
                                   1.F};
    return kValues[code];
  }
  // Two tables of bytes come so near to these values (BookTables of tenon/cuda/coded_weights.cuh): fp16 comes as near as
  // 1.9e-4, bf16 as near as 1.6e-3. With these units and places the farthest value is nearer than with any others.
  static constexpr uint64_t kPlaces = 0xc53ab248fed97610;
  static constexpr float kLowerUnit = 0.01234276F, kUpperUnit = 0.005125034F, kMostOff = 4.75e-4F;
  static constexpr bool is_nan(uint32_t) { return false; }

 private:
  // most[code] is the largest float that is not nearer to the next value.
  struct Bounds {
    float most[15];
  };
  static constexpr Bounds bounds() {
    Bounds all{};
    for (uint32_t i = 0; i < 15; ++i) {
      const double middle = (double{value(i)} + double{value(i + 1)}) / 2;
      const auto bound = static_cast<float>(middle);
      const auto bits = __builtin_bit_cast(uint32_t, bound);
      const uint32_t less = bound < 0 ? bits + 1 : bits - 1;
      all.most[i] = double{bound} > middle ? __builtin_bit_cast(float, less) : bound;
    }
    return all;
  }

 public:
  // Returns the code of the nearest value, of two equally near ones the smaller.
  static constexpr uint32_t nearest(float x) {
    constexpr Bounds kBounds = bounds();
    uint32_t code = 0;
    for (const float bound : kBounds.most) code += x > bound ? 1 : 0;
    return code;
  }
};

// This is bitsandbytes' FP4, in twelfths: its values are multiples of a twelfth and, for the smallest, of 1 / 192. The
// fourth bit of a code is the sign.
struct Float4 {
  static constexpr uint32_t kBits = 4;
  static constexpr float kLargest = 12;
  static constexpr float value(uint32_t code) {
    constexpr float kValues[16] = {0.F,  0.0625F,  8.F,  12.F,  4.F,  6.F,  2.F,  3.F,
                                   -0.F, -0.0625F, -8.F, -12.F, -4.F, -6.F, -2.F, -3.F};
    return kValues[code];
  }
  // Two tables of bytes have these values (BookTables of tenon/cuda/coded_weights.cuh): the lower one multiples of 4 and
  // -1/16, the upper one the others.
  static constexpr uint64_t kPlaces = 0x8fe576d1bac32490;
  static constexpr float kLowerUnit = 4, kUpperUnit = 0.0625F, kMostOff = 0;
  static constexpr bool is_nan(uint32_t) { return false; }
  // Returns the code of the nearest value, of two equally near ones that nearer to 0.
  static constexpr uint32_t nearest(float x) {
    constexpr uint32_t kRising[8] = {0, 1, 6, 7, 4, 5, 2, 3};
    constexpr float kMiddles[7] = {0.03125F, 1.03125F, 2.5F, 3.5F, 5.F, 7.F, 10.F};
    const float magnitude = x < 0 ? -x : x;
    uint32_t n = 0;
    for (const float middle : kMiddles) n += magnitude > middle ? 1 : 0;
    return kRising[n] | (x < 0 && n != 0 ? 8U : 0U);
  }
};

// E2M1 has a sign, two bits of exponent and one of mantissa ("OCP Microscaling Formats
// (MX) Specification", version 1.0, 2023).
struct E2m1 {
  using Small = sdk::SmallFloat<2, 1>;
  static constexpr uint32_t kBits = 4;
  static constexpr float kLargest = 6;
  static constexpr float value(uint32_t code) { return Small::value(code); }
  static constexpr bool is_nan(uint32_t) { return false; }
  static constexpr uint32_t nearest(float x) { return Small::nearest(x); }
};

}  // namespace tenon::coded
