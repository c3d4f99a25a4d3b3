// These are random rows of weights in every format that a file may store them in.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tenon/abi/types.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::conformance {

// Byte offsets of the half-precision scales of a block; any other byte may be anything.
inline std::vector<uint32_t> scale_offsets(tenon_format format) {
  switch (format) {
    case TENON_Q4_1:
    case TENON_Q5_1:
    case TENON_Q4_K:
    case TENON_Q5_K:
      return {0, 2};
    case TENON_Q2_K:
      return {80, 82};
    case TENON_Q3_K:
      return {108};
    case TENON_Q6_K:
      return {208};
    case TENON_TQ1_0:
      return {52};
    case TENON_TQ2_0:
      return {64};
    case TENON_MXFP4:
      return {};
    default:
      return {0};
  }
}

// Makes rows x k weights as a file would hold them, of size `scale` or so.
inline std::vector<uint8_t> random_rows(tenon_format format, uint32_t rows, uint32_t k, float scale,
                                        std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-scale, scale);
  const tenon_block block = tenon_format_block(format);
  std::vector<uint8_t> bytes(size_t{rows} * k / block.elements * block.bytes);
  if (block.elements == 1) {
    for (size_t i = 0; i < size_t{rows} * k; ++i) {
      const float w = uniform(random);
      const uint16_t half = format == TENON_F16 ? sdk::float_to_half(w) : sdk::float_to_bf16(w);
      if (format == TENON_F32) std::memcpy(&bytes[i * 4], &w, 4);
      if (format != TENON_F32) std::memcpy(&bytes[i * 2], &half, 2);
    }
    return bytes;
  }
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  for (size_t at = 0; at < bytes.size(); at += block.bytes) {
    for (const uint32_t offset : scale_offsets(format)) {
      const uint16_t half = sdk::float_to_half(uniform(random));
      std::memcpy(&bytes[at + offset], &half, 2);
    }
    // The scale is a power of two, the largest weight 6 times of it.
    if (format == TENON_MXFP4)
      bytes[at] = static_cast<uint8_t>(127 + std::ilogb(scale / 6) - static_cast<int>(bytes[at] % 3));
  }
  return bytes;
}

inline constexpr tenon_format kFileFormats[] = {
    TENON_F32,  TENON_F16,  TENON_BF16, TENON_Q4_0, TENON_Q4_1,   TENON_Q5_0,   TENON_Q5_1,  TENON_Q8_0,  TENON_Q2_K,
    TENON_Q3_K, TENON_Q4_K, TENON_Q5_K, TENON_Q6_K, TENON_IQ4_NL, TENON_IQ4_XS, TENON_TQ1_0, TENON_TQ2_0, TENON_MXFP4};

}  // namespace tenon::conformance
