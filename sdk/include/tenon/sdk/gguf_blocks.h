// This file unpacks GGUF's block formats, one block at a time, in plain code: the vector kernels are checked against
// it, and code reads blocks with it where speed does not matter. Scales are half precision with integers of few bits,
// so every product below is exact in f32 and each weight is rounded at most once, whether or not multiplications and
// additions are fused. The layouts are those of the GGUF specification and ggml's block types. Only code that is
// compiled for the base machine may include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "tenon/abi/types.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/gguf_books.h"

namespace tenon::sdk {

inline float half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return half_to_float(bits);
}

// Byte j of the nibbles holds weight j (low nibble) and j + 16 (high nibble); of Q5_0 and Q5_1, bit j of `fifth` is the
// fifth bit of weight j. fifth is 0 for Q4_0 and Q4_1.
inline void unpack_legacy(const uint8_t* nibbles, uint32_t fifth, float scale, float shift, float* w) {
  for (uint32_t j = 0; j < 16; ++j) {
    const uint32_t low = (nibbles[j] & 15u) | ((fifth >> j) & 1u) << 4;
    const uint32_t high = (nibbles[j] >> 4) | ((fifth >> (j + 16)) & 1u) << 4;
    w[j] = static_cast<float>(low) * scale + shift;
    w[j + 16] = static_cast<float>(high) * scale + shift;
  }
}
inline uint32_t word_at(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

inline void unpack_q8_0(const uint8_t* p, float* w) {
  for (int j = 0; j < 32; ++j) w[j] = static_cast<float>(static_cast<int8_t>(p[2 + j])) * half_at(p);
}

// A block has 16 bytes of 4-bit scales and minima, 64 bytes of 2-bit weights, and d and dmin in f16.
inline void unpack_q2_k(const uint8_t* p, float* w) {
  const float d = half_at(p + 80), dmin = half_at(p + 82);
  for (int run = 0; run < 16; ++run, w += 16) {
    const float scale = d * static_cast<float>(p[run] & 15), min = dmin * static_cast<float>(p[run] >> 4);
    const uint8_t* q = p + 16 + run / 8 * 32 + run % 2 * 16;
    for (int j = 0; j < 16; ++j) w[j] = scale * static_cast<float>((q[j] >> (run % 8 / 2 * 2)) & 3) - min;
  }
}

// Q3_K has sixteen 6-bit scales, stored plus 32: low nibbles in bytes 0 to 7, the upper two bits in bytes 8 to 11.
constexpr int q3_k_scale(const uint8_t* s, int run) {
  const int low = run < 8 ? s[run] & 15 : s[run - 8] >> 4;
  return (low | ((s[8 + run % 4] >> (run / 4 * 2)) & 3) << 4) - 32;
}
// A block has 32 bytes of third bits, 64 of the lower two, 12 of scales, and d in f16.
inline void unpack_q3_k(const uint8_t* p, float* w) {
  const float d = half_at(p + 108);
  for (int run = 0; run < 16; ++run, w += 16) {
    const float scale = d * static_cast<float>(q3_k_scale(p + 96, run));
    const uint8_t *q = p + 32 + run / 8 * 32 + run % 2 * 16, *third = p + run % 2 * 16;
    for (int j = 0; j < 16; ++j) {
      const int value = ((q[j] >> (run % 8 / 2 * 2)) & 3) - (((third[j] >> (run / 2)) & 1) != 0 ? 0 : 4);
      w[j] = scale * static_cast<float>(value);
    }
  }
}

// Q4_K and Q5_K have eight 6-bit scales and minima in 12 bytes.
struct ScaleMin {
  int scale, min;
};
constexpr ScaleMin k_scale_min(const uint8_t* s, int group) {
  if (group < 4) return {s[group] & 63, s[group + 4] & 63};
  return {(s[group + 4] & 15) | (s[group - 4] >> 6) << 4, (s[group + 4] >> 4) | (s[group] >> 6) << 4};
}
// A block has d and dmin in f16, 12 bytes of scales and minima, 32 of fifth bits (Q5_K only), and 128 of nibbles.
inline void unpack_q4_q5_k(const uint8_t* p, const uint8_t* fifth, const uint8_t* nibbles, float* w) {
  const float d = half_at(p), dmin = half_at(p + 2);
  for (int group = 0; group < 8; ++group, w += 32) {
    const ScaleMin s = k_scale_min(p + 4, group);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    const uint8_t* q = nibbles + group / 2 * 32;
    for (int j = 0; j < 32; ++j) {
      const int bit = fifth != nullptr ? ((fifth[j] >> group) & 1) << 4 : 0;
      w[j] = scale * static_cast<float>(((q[j] >> (group % 2 * 4)) & 15) | bit) - min;
    }
  }
}

// A block has 128 bytes of low nibbles, 64 of upper two bits, 16 scales in int8, and d in f16.
inline void unpack_q6_k(const uint8_t* p, float* w) {
  const float d = half_at(p + 208);
  for (int run = 0; run < 16; ++run, w += 16) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(p[192 + run]));
    const int half = run / 8, quarter = run % 8 / 2, at = run % 2 * 16;
    const uint8_t *low = p + half * 64 + quarter % 2 * 32 + at, *high = p + 128 + half * 32 + at;
    for (int j = 0; j < 16; ++j) {
      const int value = ((low[j] >> (quarter / 2 * 4)) & 15) | ((high[j] >> (2 * quarter)) & 3) << 4;
      w[j] = scale * static_cast<float>(value - 32);
    }
  }
}

// Byte j of 16 holds the codes of weights j (low nibble) and j + 16 (high nibble) of 32.
inline void unpack_chosen(const uint8_t* nibbles, const int8_t (&numbers)[16], float scale, float* w) {
  for (uint32_t j = 0; j < 16; ++j) {
    w[j] = scale * static_cast<float>(numbers[nibbles[j] & 15u]);
    w[j + 16] = scale * static_cast<float>(numbers[nibbles[j] >> 4]);
  }
}
// A block has d in f16, two upper bits of eight 6-bit scales in a word of 16 bits, their lower four in 4 bytes, and 128
// bytes of codes. Scales are stored plus 32.
constexpr int iq4_xs_scale(const uint8_t* p, int group) {
  const int upper = (p[2 + group / 4] >> (group % 4 * 2)) & 3, lower = (p[4 + group / 2] >> (group % 2 * 4)) & 15;
  return (lower | upper << 4) - 32;
}
inline void unpack_iq4_xs(const uint8_t* p, float* w) {
  const float d = half_at(p);
  for (int group = 0; group < 8; ++group) {
    unpack_chosen(p + 8 + 16 * group, Iq4Numbers::kNumbers, d * static_cast<float>(iq4_xs_scale(p, group)),
                  w + 32 * group);
  }
}
// Returns the scale of a block of MXFP4 for E2m1Numbers::kDoubled: 2^(e - 128).
inline float half_power(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000U << e : (uint32_t{e} - 1) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}
// Unpacks weights of -1, 0 and 1. TQ2_0 has 64 bytes of 2-bit weights plus 1, as Q2_K, and d in f16.
inline void unpack_tq2_0(const uint8_t* p, float* w) {
  const float d = half_at(p + 64);
  for (int i = 0; i < 256; ++i) {
    w[i] = d * static_cast<float>(((p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3) - 1);
  }
}
// TQ1_0 has five weights a byte, as the digits of a number of base three: the byte / 256 is a fraction whose first
// digit is the first weight plus 1. Of 32 bytes the first digits are weights 0 to 31, the second 32 to 63, ...; then
// come 16 bytes of weights 160 to 239, and 4 bytes with four digits of 240 to 255; then d in f16.
constexpr int tq1_0_weight(const uint8_t* p, int i) {
  const int place = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
  const int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
  uint32_t rest = p[place];
  for (int n = 0; n < digit; ++n) rest = rest * 3 & 255u;
  return static_cast<int>(rest * 3 >> 8) - 1;
}
inline void unpack_tq1_0(const uint8_t* p, float* w) {
  const float d = half_at(p + 52);
  for (int i = 0; i < 256; ++i) w[i] = d * static_cast<float>(tq1_0_weight(p, i));
}

// It unpacks one block of a GGUF format to tenon_format_block(format).elements weights.
inline void unpack_block(tenon_format format, const uint8_t* p, float* w) {
  switch (format) {
    case TENON_Q4_0:
      return unpack_legacy(p + 2, 0, half_at(p), -8 * half_at(p), w);
    case TENON_Q4_1:
      return unpack_legacy(p + 4, 0, half_at(p), half_at(p + 2), w);
    case TENON_Q5_0:
      return unpack_legacy(p + 6, word_at(p + 2), half_at(p), -16 * half_at(p), w);
    case TENON_Q5_1:
      return unpack_legacy(p + 8, word_at(p + 4), half_at(p), half_at(p + 2), w);
    case TENON_Q8_0:
      return unpack_q8_0(p, w);
    case TENON_Q2_K:
      return unpack_q2_k(p, w);
    case TENON_Q3_K:
      return unpack_q3_k(p, w);
    case TENON_Q4_K:
      return unpack_q4_q5_k(p, nullptr, p + 16, w);
    case TENON_Q5_K:
      return unpack_q4_q5_k(p, p + 16, p + 48, w);
    case TENON_Q6_K:
      return unpack_q6_k(p, w);
    case TENON_IQ4_NL:
      return unpack_chosen(p + 2, Iq4Numbers::kNumbers, half_at(p), w);
    case TENON_IQ4_XS:
      return unpack_iq4_xs(p, w);
    case TENON_TQ1_0:
      return unpack_tq1_0(p, w);
    case TENON_TQ2_0:
      return unpack_tq2_0(p, w);
    case TENON_MXFP4:
      return unpack_chosen(p + 1, E2m1Numbers::kDoubled, half_power(p[0]), w);
    default:
      return;
  }
}

// unpack_row reads these formats.
inline constexpr tenon_format kUnpackedFormats[] = {
    TENON_F32,  TENON_F16,  TENON_BF16, TENON_Q4_0, TENON_Q4_1,   TENON_Q5_0,   TENON_Q5_1,  TENON_Q8_0,  TENON_Q2_K,
    TENON_Q3_K, TENON_Q4_K, TENON_Q5_K, TENON_Q6_K, TENON_IQ4_NL, TENON_IQ4_XS, TENON_TQ1_0, TENON_TQ2_0, TENON_MXFP4};
constexpr bool can_unpack(tenon_format format) {
  for (const tenon_format f : kUnpackedFormats) {
    if (f == format) return true;
  }
  return false;
}
// It lists the formats for which reads(format) is true: "f32, f16, ...".
template <class Reads>
std::string readable_formats(const Reads& reads) {
  std::string text;
  for (const tenon_format f : kUnpackedFormats) {
    if (reads(f)) text += (text.empty() ? "" : ", ") + std::string(tenon_format_name(f));
  }
  return text;
}
// A row of k weights has so many bytes; 0 if k weights are not whole blocks.
inline uint64_t plain_row_bytes(tenon_format format, uint64_t k) {
  const tenon_block block = tenon_format_block(format);
  return block.elements == 0 || k % block.elements != 0 ? 0 : k / block.elements * block.bytes;
}

// It unpacks the first n weights of a row to w; n is a multiple of the format's block.
inline void unpack_row(tenon_format format, const void* row, size_t n, float* w) {
  const auto* p = static_cast<const uint8_t*>(row);
  if (format == TENON_F32) {
    std::memcpy(w, p, n * sizeof(float));
  } else if (format == TENON_F16) {
    for (size_t i = 0; i < n; ++i) w[i] = half_at(p + 2 * i);
  } else if (format == TENON_BF16) {
    for (size_t i = 0; i < n; ++i) w[i] = bf16_to_float(static_cast<uint16_t>(p[2 * i] | p[2 * i + 1] << 8));
  } else {
    const tenon_block block = tenon_format_block(format);
    for (size_t i = 0; i < n; i += block.elements, p += block.bytes) unpack_block(format, p, w + i);
  }
}

}  // namespace tenon::sdk
