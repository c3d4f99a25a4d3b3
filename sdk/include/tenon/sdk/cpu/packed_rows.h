// GGUF's blocks of few bits with sixteen rows side by side, for integer products. Every code, scale and minimum keeps
// its bits; only where it lies changes.
//
// Sixteen rows make a group; rows that a matrix lacks are zeros. A group is units of 32 or 256 k, one behind the other.
// A unit is the rows' scales, then for each 32 k the codes: step s (0 to 7) has k 4 s to 4 s + 3 of row 0, then of row
// 1, and so on, 64 bytes. Codes of 4 bits lie two steps to 64 bytes, s in the lower half and s + 4 in the upper; those
// of 6 bits have four steps in three times 64 bytes: steps 0 to 2 in the lower six bits, and in the upper two the bits
// 0 and 1, 2 and 3, 4 and 5 of step 3.
//
//   code          unit k  bytes  scales of 16 rows
//   kPackedQ4_0       32    288  f16 d; w = d (q - 8)
//   kPackedQ4_1       32    320  f16 d, f16 m; w = d q + m
//   kPackedQ8_0       32    544  f16 d; w = d (q - 128)
//   kPackedQ4_K      256   2368  f16 d, f16 m; and before the codes of each 32 k: u8 s, u8 t; w = d s q - m t
//   kPackedQ6_K      256   3360  f16 d; and before the codes of each 32 k: i8 s of either half; w = d s (q - 32)
// For code compiled for the base machine only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tenon/sdk/cpu/gguf_blocks.h"
#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::sdk::cpu {

// How one format is packed. Rows have k weights, k a multiple of unit_k; a row takes bytes_of_row() in its group.
struct Packing {
  uint32_t code;
  tenon_format source;
  uint32_t unit_k, unit_bytes;
  // A unit of one row to its place in the group's; and back, as floats.
  void (*pack)(const uint8_t* blocks, uint32_t row, uint8_t* unit);
  void (*unpack)(const uint8_t* unit, uint32_t row, float* w);

  uint64_t bytes_of_row(uint64_t k) const { return k / unit_k * unit_bytes / kGroupRows; }
};

namespace detail {

inline void put_step(uint8_t* codes, uint32_t step, uint32_t row, uint32_t four) {
  std::memcpy(codes + 64 * size_t{step} + 4 * size_t{row}, &four, sizeof(four));
}
inline uint32_t step_at(const uint8_t* codes, uint32_t step, uint32_t row) {
  return word_at(codes + 64 * size_t{step} + 4 * size_t{row});
}
inline void copy_half(uint8_t* to, uint32_t row, const uint8_t* from) {
  std::memcpy(to + 2 * size_t{row}, from, 2);
}

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
  for (uint32_t k = 0; k < 32; ++k) w[k] = d * static_cast<float>(unit[32 + 64 * (k / 4) + 4 * row + k % 4] - 128);
}

inline constexpr size_t kQ4_KPart = 32 + 256;
inline void pack_q4_k_unit(const uint8_t* block, uint32_t row, uint8_t* unit) {
  copy_half(unit, row, block), copy_half(unit + 32, row, block + 2);
  for (uint32_t part = 0; part < 8; ++part) {
    uint8_t* to = unit + 64 + part * kQ4_KPart;
    const ScaleMin s = k_scale_min(block + 4, static_cast<int>(part));
    to[row] = static_cast<uint8_t>(s.scale), to[16 + row] = static_cast<uint8_t>(s.min);
    const uint8_t* nibbles = block + 16 + part / 2 * size_t{32};  // of two parts, one in either half of the bytes
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

inline constexpr size_t kQ6_KPart = 32 + 384;
inline void pack_q6_k_unit(const uint8_t* block, uint32_t row, uint8_t* unit) {
  copy_half(unit, row, block + 208);
  for (uint32_t part = 0; part < 8; ++part) {
    uint8_t* to = unit + 32 + part * kQ6_KPart;
    to[row] = block[192 + 2 * part], to[16 + row] = block[193 + 2 * part];
    const uint32_t quarter = part % 4;
    const uint8_t *low = block + part / 4 * 64 + quarter % 2 * 32, *high = block + 128 + part / 4 * 32;
    const auto low_at = [&](uint32_t s) { return word_at(low + 4 * s) >> (quarter / 2 * 4) & 0x0f0f0f0fu; };
    const auto high_at = [&](uint32_t s) { return word_at(high + 4 * s) >> (2 * quarter) & 0x03030303u; };
    for (uint32_t half = 0; half < 2; ++half) {
      const auto code_at = [&](uint32_t s) { return low_at(4 * half + s) | high_at(4 * half + s) << 4; };
      for (uint32_t s = 0; s < 3; ++s) {
        put_step(to + 32, 3 * half + s, row, code_at(s) | (code_at(3) >> (2 * s) & 0x03030303u) << 6);
      }
    }
  }
}
inline uint32_t six_bits_at(const uint8_t* codes, uint32_t row, uint32_t k) {
  const uint8_t* steps = codes + k / 16 * size_t{192} + 4 * size_t{row} + k % 4;
  const uint32_t s = k % 16 / 4;
  return s < 3 ? steps[64 * s] & 63u : steps[0] >> 6 | steps[64] >> 6 << 2 | steps[128] >> 6 << 4;
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

}  // namespace detail

inline constexpr Packing kPackings[] = {
    {kPackedQ4_0, TENON_Q4_0, 32, 288, &detail::pack_four_bits<1>, &detail::unpack_q4_0_unit},
    {kPackedQ4_1, TENON_Q4_1, 32, 320, &detail::pack_four_bits<2>, &detail::unpack_q4_1_unit},
    {kPackedQ8_0, TENON_Q8_0, 32, 544, &detail::pack_q8_0_unit, &detail::unpack_q8_0_unit},
    {kPackedQ4_K, TENON_Q4_K, 256, 2368, &detail::pack_q4_k_unit, &detail::unpack_q4_k_unit},
    {kPackedQ6_K, TENON_Q6_K, 256, 3360, &detail::pack_q6_k_unit, &detail::unpack_q6_k_unit}};

// nullptr: there is none.
inline const Packing* packing_of(tenon_format source) {
  for (const Packing& p : kPackings) {
    if (p.source == source) return &p;
  }
  return nullptr;
}
inline const Packing* packing_by_code(uint32_t code) {
  for (const Packing& p : kPackings) {
    if (p.code == code) return &p;
  }
  return nullptr;
}

// Row `row` of a matrix whose groups begin at store, from a row of a file and to floats.
inline void pack_row(const Packing& p, const uint8_t* from, uint32_t k, uint64_t row, uint8_t* store) {
  const tenon_block block = tenon_format_block(p.source);
  const size_t unit_from = p.unit_k / block.elements * block.bytes;
  uint8_t* unit = store + row / kGroupRows * kGroupRows * p.bytes_of_row(k);
  for (uint32_t i = 0; i < k; i += p.unit_k, from += unit_from, unit += p.unit_bytes) {
    p.pack(from, static_cast<uint32_t>(row % kGroupRows), unit);
  }
}
inline void unpack_packed_row(const Packing& p, const uint8_t* store, uint32_t k, uint64_t row, float* w) {
  const uint8_t* unit = store + row / kGroupRows * kGroupRows * p.bytes_of_row(k);
  for (uint32_t i = 0; i < k; i += p.unit_k, unit += p.unit_bytes) {
    p.unpack(unit, static_cast<uint32_t>(row % kGroupRows), w + i);
  }
}

}  // namespace tenon::sdk::cpu
