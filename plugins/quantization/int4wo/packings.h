// Rows of int4wo are packed so, sixteen side by side (tenon/sdk/cpu/packed_rows.h), for products of x in 16 bits. A
// unit is a group of G weights: bf16 scale of each row, bf16 zero point of each row, then for each 32 k four times
// 64 bytes, steps i and i + 4 in the lower and the upper half of their bytes, as a row has them. It is for code
// that is compiled for the base machine only.
#pragma once

#include "pack.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/cpu/packed_rows.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::int4wo {

inline constexpr uint32_t kScales = 2 * sdk::cpu::kGroupRows;  // the scales take so many bytes, and the zero points

template <uint32_t kGroup>
struct PackedGroup {
  static void pack(const uint8_t* group, uint32_t row, uint8_t* unit) {
    sdk::cpu::copy_half(unit, row, group);
    sdk::cpu::copy_half(unit + kScales, row, group + 2);
    for (uint32_t step = 0; step < kGroup / 8; ++step) {
      sdk::cpu::put_step(unit + 2 * size_t{kScales}, step, row, sdk::word_at(group + kGroupHeader + 4 * size_t{step}));
    }
  }
  static void unpack(const uint8_t* unit, uint32_t row, float* w) {
    const float scale = bf16_at(unit + 2 * size_t{row}), zero = bf16_at(unit + kScales + 2 * size_t{row});
    const uint8_t* codes = unit + 2 * size_t{kScales} + 4 * size_t{row};
    for (uint32_t i = 0; i < kGroup; ++i) {
      const uint32_t byte = codes[i / 32 * size_t{256} + i % 16 / 4 * 64 + i % 4];
      w[i] = static_cast<float>(static_cast<int>(byte >> (i % 32 / 16 * 4) & 15U) - 8) * scale + zero;
    }
  }

  static constexpr sdk::cpu::Packing kPacking{code_of(kGroup), kGroup, 2 * kScales + 8 * kGroup, &pack, &unpack};

 private:
  static float bf16_at(const uint8_t* p) {
    uint16_t bits = 0;
    std::memcpy(&bits, p, sizeof(bits));
    return sdk::bf16_to_float(bits);
  }
};

inline const sdk::cpu::Packing* packing_of(uint32_t code) {
  for (const sdk::cpu::Packing* p : {&PackedGroup<32>::kPacking, &PackedGroup<64>::kPacking,
                                     &PackedGroup<128>::kPacking, &PackedGroup<256>::kPacking}) {
    if (p->code == code) return p;
  }
  return nullptr;
}

}  // namespace tenon::int4wo
