// Rows of int8wo are packed so, sixteen side by side (tenon/sdk/cpu/packed_rows.h), for products of x in 16 bits. A
// group of rows begins with their scales in f32; a unit has 32 k, step s in its s-th 64 bytes, as bytes without a sign:
// the weight's integer and 128. It is for code that is compiled for the base machine only.
#pragma once

#include "pack.h"
#include "tenon/sdk/cpu/packed_rows.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::int8wo {

// Returns the bytes of a row as it is stored, in whole units.
constexpr uint64_t filled_row_bytes(uint64_t k) {
  return kScaleBytes + (k + 31) / 32 * 32;
}

inline void pack_unit(const uint8_t* integers, uint32_t row, uint8_t* unit) {
  for (uint32_t step = 0; step < 8; ++step) {
    sdk::cpu::put_step(unit, step, row, sdk::word_at(integers + 4 * size_t{step}) ^ 0x80808080U);
  }
}
inline void unpack_unit(const uint8_t* unit, uint32_t row, float* w) {
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t four = i / 4;
    w[i] = static_cast<float>(unit[64 * four + 4 * row + i % 4] - 128);
  }
}
inline constexpr sdk::cpu::Packing kPacking{kInt8Row, 32, 512, &pack_unit, &unpack_unit, true};

inline const sdk::cpu::Packing* packing_of(uint32_t) {
  return &kPacking;
}

}  // namespace tenon::int8wo
