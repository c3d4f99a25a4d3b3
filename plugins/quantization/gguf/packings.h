// GGUF's blocks of few bits are packed so, sixteen rows side by side (tenon/sdk/cpu/packed_rows.h). Every code, scale
// and minimum keeps its bits; only where it lies changes.
//
// Codes of 4 bits lie two steps to 64 bytes, s in the lower half and s + 4 in the upper; those of 6 bits have four
// steps in three times 64 bytes: steps 0 to 2 in the lower six bits, and in the upper two the bits 0 and 1, 2 and 3, 4
// and 5 of step 3. Codes of 5 bits lie like those of 6.
//
//   code          unit k  bytes  scales of 16 rows
//   kPackedQ4_0       32    288  f16 d; w = d (q - 8)
//   kPackedQ4_1       32    320  f16 d, f16 m; w = d q + m
//   kPackedQ5_0       32    416  f16 d; w = d (q - 16)
//   kPackedQ8_0       32    544  f16 d; w = d (q - 128)
//   kPackedQ4_K      256   2368  f16 d, f16 m; and before the codes of each 32 k: u8 s, u8 t; w = d s q - m t
//   kPackedQ6_K      256   3360  f16 d; and before the codes of each 32 k: i8 s of either half; w = d s (q - 32)
// It is for code that is compiled for the base machine only.
#pragma once

#include "codes.h"
#include "tenon/sdk/cpu/packed_rows.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::gguf {

using sdk::half_at, sdk::word_at;
using sdk::cpu::copy_half, sdk::cpu::put_step;

// GGUF's 16 bytes of nibbles have k and k + 16 together, which are steps s and s + 4.
inline void pack_nibbles(const uint8_t* nibbles, uint32_t row, uint8_t* codes) {
  for (uint32_t s = 0; s < 4; ++s) put_step(codes, s, row, word_at(nibbles + 4 * s));
}
inline uint32_t nibble_at(const uint8_t* codes, uint32_t row, uint32_t k) {
  return codes[64 * (k % 16 / 4) + 4 * row + k % 4] >> (k / 16 * 4) & 15u;
}

template <uint32_t kScales>
void pack_four_bits(const uint8_t* block, uint32_t row, uint8_t* unit) {
  for (uint32_t i = 0; i < kScales; ++i) copy_half(unit + 32 * size_t{i}, row, block + 2 * size_t{i});
  pack_nibbles(block + 2 * size_t{kScales}, row, unit + 32 * size_t{kScales});
}
inline void unpack_q4_0_unit(const uint8_t* unit, uint32_t row, float* w) {
  const float d = half_at(unit + 2 * size_t{row});
  for (uint32_t k = 0; k < 32; ++k) w[k] = d * static_cast<float>(static_cast<int>(nibble_at(unit + 32, row, k)) - 8);
}
inline void unpack_q4_1_unit(const uint8_t* unit, uint32_t row, float* w) {
  const float d = half_at(unit + 2 * size_t{row}), m = half_at(unit + 32 + 2 * size_t{row});
  for (uint32_t k = 0; k < 32; ++k) w[k] = d * static_cast<float>(nibble_at(unit + 64, row, k)) + m;
}

inline void pack_q8_0_unit(const uint8_t* block, uint32_t row, uint8_t* unit) {
  copy_half(unit, row, block);
  for (uint32_t s = 0; s < 8; ++s) put_step(unit + 32, s, row, word_at(block + 2 + 4 * size_t{s}) ^ 0x80808080u);
}
inline void unpack_q8_0_unit(const uint8_t* unit, uint32_t row, float* w) {
  const float d = half_at(unit + 2 * size_t{row});
  for (uint32_t k = 0; k < 32; ++k) {
    const int q = unit[32 + 64 * (k / 4) + 4 * row + k % 4] - 128;
    w[k] = d * static_cast<float>(q);
  }
}

inline constexpr size_t kQ4_KPart = 32 + 256;
inline void pack_q4_k_unit(const uint8_t* block, uint32_t row, uint8_t* unit) {
  copy_half(unit, row, block);
  copy_half(unit + 32, row, block + 2);
  for (uint32_t part = 0; part < 8; ++part) {
    uint8_t* to = unit + 64 + part * kQ4_KPart;
    const sdk::ScaleMin s = sdk::k_scale_min(block + 4, static_cast<int>(part));
    to[row] = static_cast<uint8_t>(s.scale);
    to[16 + row] = static_cast<uint8_t>(s.min);
    const uint8_t* nibbles = block + 16 + part / 2 * size_t{32};  // a part has lower halves, the next upper ones
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t first = word_at(nibbles + 4 * i) >> (part % 2 * 4) & 0x0f0f0f0fu;
      const uint32_t second = word_at(nibbles + 16 + 4 * i) >> (part % 2 * 4) & 0x0f0f0f0fu;
      put_step(to + 32, i, row, first | second << 4);
    }
  }
}
inline void unpack_q4_k_unit(const uint8_t* unit, uint32_t row, float* w) {
  const float d = half_at(unit + 2 * size_t{row}), m = half_at(unit + 32 + 2 * size_t{row});
  for (uint32_t part = 0; part < 8; ++part, w += 32) {
    const uint8_t* from = unit + 64 + part * kQ4_KPart;
    const float scale = d * static_cast<float>(from[row]), min = m * static_cast<float>(from[16 + row]);
    for (uint32_t k = 0; k < 32; ++k) w[k] = scale * static_cast<float>(nibble_at(from + 32, row, k)) - min;
  }
}

// Lays out the codes of six bits, one a byte, of 32 k.
template <class CodesAt>
void pack_six_bits(const CodesAt& codes_at, uint32_t row, uint8_t* codes) {
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t last = codes_at(4 * half + 3);
    for (uint32_t s = 0; s < 3; ++s) {
      put_step(codes, 3 * half + s, row, codes_at(4 * half + s) | (last >> (2 * s) & 0x03030303u) << 6);
    }
  }
}
inline uint32_t six_bits_at(const uint8_t* codes, uint32_t row, uint32_t k) {
  const uint8_t* steps = codes + k / 16 * size_t{192} + 4 * size_t{row} + k % 4;
  const uint32_t s = k % 16 / 4;
  return s < 3 ? steps[64 * s] & 63u : steps[0] >> 6 | steps[64] >> 6 << 2 | steps[128] >> 6 << 4;
}

// A block has the fifth bits of its 32 codes in a word.
inline void pack_q5_0_unit(const uint8_t* block, uint32_t row, uint8_t* unit) {
  copy_half(unit, row, block);
  const uint32_t fifths = word_at(block + 2);
  const auto codes_at = [&](uint32_t s) {
    uint32_t codes = word_at(block + 6 + 4 * (s % 4)) >> (s / 4 * 4) & 0x0f0f0f0fu;
    for (uint32_t i = 0; i < 4; ++i) codes |= (fifths >> (4 * s + i) & 1u) << (8 * i + 4);
    return codes;
  };
  pack_six_bits(codes_at, row, unit + 32);
}
inline void unpack_q5_0_unit(const uint8_t* unit, uint32_t row, float* w) {
  const float d = half_at(unit + 2 * size_t{row});
  for (uint32_t k = 0; k < 32; ++k)
    w[k] = d * static_cast<float>(static_cast<int>(six_bits_at(unit + 32, row, k)) - 16);
}

inline constexpr size_t kQ6_KPart = 32 + 384;
inline void pack_q6_k_unit(const uint8_t* block, uint32_t row, uint8_t* unit) {
  copy_half(unit, row, block + 208);
  for (uint32_t part = 0; part < 8; ++part) {
    uint8_t* to = unit + 32 + part * kQ6_KPart;
    to[row] = block[192 + 2 * part];
    to[16 + row] = block[193 + 2 * part];
    const uint32_t quarter = part % 4;
    const uint8_t *low = block + part / 4 * 64 + quarter % 2 * 32, *high = block + 128 + part / 4 * 32;
    const auto low_at = [&](uint32_t s) { return word_at(low + 4 * s) >> (quarter / 2 * 4) & 0x0f0f0f0fu; };
    const auto high_at = [&](uint32_t s) { return word_at(high + 4 * s) >> (2 * quarter) & 0x03030303u; };
    pack_six_bits([&](uint32_t s) { return low_at(s) | high_at(s) << 4; }, row, to + 32);
  }
}
inline void unpack_q6_k_unit(const uint8_t* unit, uint32_t row, float* w) {
  const float d = half_at(unit + 2 * size_t{row});
  for (uint32_t part = 0; part < 8; ++part, w += 32) {
    const uint8_t* from = unit + 32 + part * kQ6_KPart;
    for (uint32_t k = 0; k < 32; ++k) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(from[k / 16 * 16 + row]));
      w[k] = scale * static_cast<float>(static_cast<int>(six_bits_at(from + 32, row, k)) - 32);
    }
  }
}

// This is a format of GGUF and how it is packed.
struct BlockPacking {
  tenon_format source;
  sdk::cpu::Packing packing;
};
inline constexpr BlockPacking kBlockPackings[] = {
    {TENON_Q4_0, {kPackedQ4_0, 32, 288, &pack_four_bits<1>, &unpack_q4_0_unit}},
    {TENON_Q4_1, {kPackedQ4_1, 32, 320, &pack_four_bits<2>, &unpack_q4_1_unit}},
    {TENON_Q5_0, {kPackedQ5_0, 32, 416, &pack_q5_0_unit, &unpack_q5_0_unit}},
    {TENON_Q8_0, {kPackedQ8_0, 32, 544, &pack_q8_0_unit, &unpack_q8_0_unit}},
    {TENON_Q4_K, {kPackedQ4_K, 256, 2368, &pack_q4_k_unit, &unpack_q4_k_unit}},
    {TENON_Q6_K, {kPackedQ6_K, 256, 3360, &pack_q6_k_unit, &unpack_q6_k_unit}}};

// Returns nullptr for a format that is not packed.
inline const sdk::cpu::Packing* packing_of(tenon_format source) {
  for (const BlockPacking& b : kBlockPackings) {
    if (b.source == source) return &b.packing;
  }
  return nullptr;
}
inline const sdk::cpu::Packing* packing_by_code(uint32_t code) {
  for (const BlockPacking& b : kBlockPackings) {
    if (b.packing.code == code) return &b.packing;
  }
  return nullptr;
}

}  // namespace tenon::gguf
