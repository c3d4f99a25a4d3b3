// Codes of four bits stand for these numbers in GGUF's IQ4_NL and IQ4_XS, and in MXFP4. The host uses them and, with
// relaxed constexpr, CUDA.
#pragma once

#include <cstdint>

namespace tenon::sdk {

// Both types have these: near zero they lie closer together.
struct Iq4Numbers {
  static constexpr int8_t kNumbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  static constexpr float value(uint32_t code) {
    constexpr float kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return kValues[code];
  }
};

// These are floats of a sign, two bits of exponent and one of mantissa ("OCP Microscaling Formats (MX) Specification", version 1.0,
// 2023); kDoubled has twice their values, which are whole.
struct E2m1Numbers {
  static constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  static constexpr float value(uint32_t code) {
    constexpr float kValues[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    return kValues[code];
  }
};

}  // namespace tenon::sdk
