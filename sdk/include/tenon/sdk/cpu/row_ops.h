// What is done to rows beside products: RMSNorm, their conversion to int8, SiLU. Plain loops, written so that compilers
// make vectors of them and every instruction set gives the same bits (contraction must be off). For the one source of
// an instruction set, see vector.h.
#pragma once

#include <math.h>

#include "tenon/sdk/cpu/activation.h"
#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::sdk::cpu {
namespace {

// Eight sums in double, always in the same order.
void rms_norm(const float* x, const float* weight, uint32_t n, float eps, float* y) {
  double lane[8] = {};
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (uint32_t l = 0; l < 8; ++l) lane[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  }
  for (uint32_t l = 0; i < n; ++i, ++l) lane[l] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  const auto scale = static_cast<float>(1 / sqrt(sum / n + static_cast<double>(eps)));
  for (i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

// Per block of 32: scale = absmax / 127, q = x * (127 / absmax) to the nearest (halves to even). k is a multiple of 32.
// A block with a value that is not finite gets NaN for its scale: so do its products.
void quantize_row(const float* x, uint32_t k, const Int8Row& to) {
  constexpr uint32_t kInfinite = 0x7f800000;
  for (uint32_t b = 0; b < k / kInt8Block; ++b) {
    const float* from = x + size_t{b} * kInt8Block;
    int8_t* q = to.q + size_t{b} * kInt8Block;
    uint32_t largest = 0;  // as bits, whose order is that of magnitudes
    for (uint32_t i = 0; i < kInt8Block; ++i) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]) & 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
    const bool finite = largest < kInfinite;
    const float scale = __builtin_bit_cast(float, finite ? largest : 0) / 127.0F, inverse = 1.0F / scale;
    // A scale so small that its inverse overflows belongs to values that vanish beside any other.
    const float factor = inverse <= 3.4028235e38F ? inverse : 0.0F;
    int32_t rounded[kInt8Block];
    for (uint32_t i = 0; i < kInt8Block; ++i) {
      const float steps = finite ? from[i] * factor : 0.0F;
      const float above = steps > -127.0F ? steps : -127.0F, bounded = above < 127.0F ? above : 127.0F;
      rounded[i] = static_cast<int32_t>((bounded + 0x1.8p23F) - 0x1.8p23F);
    }
    for (uint32_t i = 0; i < kInt8Block; ++i) q[i] = static_cast<int8_t>(rounded[i]);
    int32_t half[2] = {};
    for (uint32_t i = 0; i < 16; ++i) half[0] += rounded[i], half[1] += rounded[16 + i];
    to.negative16[2 * b] = -half[0], to.negative16[2 * b + 1] = -half[1];
    to.negative32[b] = -(half[0] + half[1]);
    to.scale[b] = finite ? scale : __builtin_nanf("");
    to.sum[b] = to.scale[b] * static_cast<float>(half[0] + half[1]);
  }
}

void silu_mul(float* gate, const float* up, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) gate[i] = silu(gate[i]) * up[i];
}

constexpr RowOps kRowOps{&rms_norm, &quantize_row, &silu_mul};

}  // namespace
}  // namespace tenon::sdk::cpu
