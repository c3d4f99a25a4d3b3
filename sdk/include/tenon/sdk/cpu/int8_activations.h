// Activations in int8: a row of x in blocks of 32, each with a scale, for dot products of integers. For code compiled
// for the base machine only.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::sdk::cpu {

// Per block: scale = absmax / 127, q = x * (127 / absmax) to the nearest (halves to even), sum = scale * (q added up).
// k is a multiple of 32. A block with a value that is not finite gets NaN for scale and sum: so do its products.
inline void quantize_activations(const float* x, uint32_t k, int8_t* q, float* scale, float* sum) {
  for (uint32_t b = 0; b < k / kInt8Block; ++b, x += kInt8Block, q += kInt8Block) {
    float largest = 0;
    bool finite = true;
    for (uint32_t i = 0; i < kInt8Block; ++i) {
      const float size = std::abs(x[i]);
      finite &= size <= std::numeric_limits<float>::max();
      largest = size > largest ? size : largest;
    }
    scale[b] = finite ? largest / 127.0F : std::numeric_limits<float>::quiet_NaN();
    const float inverse = finite && largest > 0 ? 1.0F / scale[b] : 0.0F;
    // A scale so small that its inverse overflows belongs to values that vanish beside any other.
    const float factor = inverse <= std::numeric_limits<float>::max() ? inverse : 0.0F;
    int32_t total = 0;
    for (uint32_t i = 0; i < kInt8Block; ++i) {
      const float steps = finite ? x[i] * factor : 0.0F;
      const float bounded = steps > 127.0F ? 127.0F : steps < -127.0F ? -127.0F : steps;
      const auto rounded = static_cast<int32_t>((bounded + 0x1.8p23F) - 0x1.8p23F);
      q[i] = static_cast<int8_t>(rounded), total += rounded;
    }
    sum[b] = scale[b] * static_cast<float>(total);
  }
}

}  // namespace tenon::sdk::cpu
