// GGUF's blocks on the GPU, taken apart into integers and scales while they load. What the bytes mean stands in
// sdk/gguf_blocks.h, whose values these are to the bit.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "tenon/abi/types.h"
#include "tenon/cuda/group_scales.cuh"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::gguf {

// Says whether a format has blocks of 256 weights with scales of two levels.
__host__ __device__ inline bool is_k_type(tenon_format format) {
  return format >= TENON_Q2_K && format <= TENON_Q6_K;
}

// Says whether weights are the integers themselves, in blocks of 256 without groups.
__host__ __device__ inline bool is_ternary(tenon_format format) {
  return format == TENON_TQ1_0 || format == TENON_TQ2_0;
}
// Says whether codes choose out of sixteen numbers.
__host__ __device__ inline bool is_chosen(tenon_format format) {
  return format == TENON_IQ4_NL || format == TENON_IQ4_XS || format == TENON_MXFP4;
}

// A group of 16 (K types) or 32 weights q has these: w = d q + m, or w = (d sc) q - (m min) for K types; d and m are
// fp16 bits; d of MXFP4 is the exponent of a power of two.
struct GroupScales {
  uint32_t d = 0, m = 0;
  int sc = 1, min = 1;
};

struct BlockRow {
  tenon_format format;
  uint32_t block_bytes;
  const uint8_t* row;

  // Returns an integer, or the code of a number out of sixteen.
  __device__ int weight(uint32_t i) const {
    const uint8_t* p = block(i);
    const uint32_t n = i % (wide() ? 256 : 32), run = n / 16, group = n / 32, j = n % 16;
    const uint32_t pair = run / 8 * 32 + run % 2 * 16 + j, shift = run % 8 / 2 * 2;  // Q2_K, Q3_K and Q6_K use these
    switch (format) {
      case TENON_Q4_0:
        return nibble(p + 2, n) - 8;
      case TENON_Q4_1:
        return nibble(p + 4, n);
      case TENON_Q5_0:
        return (nibble(p + 6, n) | bit(p[2 + n / 8], n % 8) << 4) - 16;
      case TENON_Q5_1:
        return nibble(p + 8, n) | bit(p[4 + n / 8], n % 8) << 4;
      case TENON_Q8_0:
        return static_cast<int8_t>(p[2 + n]);
      case TENON_Q2_K:
        return p[16 + pair] >> shift & 3;
      case TENON_Q3_K:
        return (p[32 + pair] >> shift & 3) - (bit(p[run % 2 * 16 + j], run / 2) != 0 ? 0 : 4);
      case TENON_Q4_K:
        return p[16 + group / 2 * 32 + n % 32] >> group % 2 * 4 & 15;
      case TENON_Q5_K:
        return (p[48 + group / 2 * 32 + n % 32] >> group % 2 * 4 & 15) | bit(p[16 + n % 32], group) << 4;
      case TENON_IQ4_NL:
        return nibble(p + 2, n);
      case TENON_IQ4_XS:
        return nibble(p + 8 + group * 16, n % 32);
      case TENON_MXFP4:
        return nibble(p + 1, n);
      case TENON_TQ1_0:
        return sdk::tq1_0_weight(p, static_cast<int>(n));
      case TENON_TQ2_0:
        return (p[n / 128 * 32 + n % 32] >> n % 128 / 32 * 2 & 3) - 1;
      default:  // Q6_K
        return ((p[run / 8 * 64 + n % 64] >> run % 8 / 4 * 4 & 15) | (p[128 + pair] >> shift & 3) << 4) - 32;
    }
  }
  __device__ GroupScales scales(uint32_t i) const {
    const uint8_t* p = block(i);
    const auto run = static_cast<int>(i % 256 / 16);
    switch (format) {
      case TENON_Q4_1:
      case TENON_Q5_1:
        return {half(p), half(p + 2)};
      case TENON_Q2_K:
        return {half(p + 80), half(p + 82), p[run] & 15, p[run] >> 4};
      case TENON_Q3_K:
        return {half(p + 108), 0, sdk::q3_k_scale(p + 96, run)};
      case TENON_Q4_K:
      case TENON_Q5_K: {
        const sdk::ScaleMin s = sdk::k_scale_min(p + 4, run / 2);
        return {half(p), half(p + 2), s.scale, s.min};
      }
      case TENON_Q6_K:
        return {half(p + 208), 0, static_cast<int8_t>(p[192 + run])};
      case TENON_IQ4_XS:
        return {half(p), 0, sdk::iq4_xs_scale(p, run / 2)};
      case TENON_TQ1_0:
        return {half(p + 52)};
      case TENON_TQ2_0:
        return {half(p + 64)};
      case TENON_MXFP4:
        return {p[0]};
      default:
        return {half(p)};
    }
  }
  __device__ float value(uint32_t i) const {
    const GroupScales s = scales(i);
    if (format == TENON_MXFP4) {
      return cuda::ExponentScales::power(s.d) * sdk::E2m1Numbers::value(static_cast<uint32_t>(weight(i)));
    }
    if (is_chosen(format)) {
      return to_float(s.d) * static_cast<float>(s.sc) * sdk::Iq4Numbers::value(static_cast<uint32_t>(weight(i)));
    }
    const float d = to_float(s.d) * static_cast<float>(s.sc), m = to_float(s.m) * static_cast<float>(s.min);
    return fmaf(d, static_cast<float>(weight(i)), is_k_type(format) ? -m : m);
  }

 private:
  __device__ bool wide() const { return is_k_type(format) || is_ternary(format) || format == TENON_IQ4_XS; }
  __device__ const uint8_t* block(uint32_t i) const { return row + i / (wide() ? 256 : 32) * block_bytes; }
  static __device__ int nibble(const uint8_t* p, uint32_t n) { return n < 16 ? p[n] & 15 : p[n - 16] >> 4; }
  static __device__ int bit(uint32_t byte, uint32_t n) { return static_cast<int>(byte >> n & 1); }
  static __device__ uint32_t half(const uint8_t* p) { return p[0] | uint32_t{p[1]} << 8; }
  static __device__ float to_float(uint32_t bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
};

}  // namespace tenon::gguf
