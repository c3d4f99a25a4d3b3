// This packs rows of sparse24, sixteen side by side (tenon/sdk/cpu/packed_rows.h), for products of x in
// 16 bits. A unit is a group of weights: the f16 scale of each row, then for each 32 weights three
// times 64 bytes, a word of four bytes a row:
//
//   quads 0 to 3   four bits each: in the word's lower half their first integers, in its upper half their second ones
//   quads 4 to 7   likewise
//   pairs          four bits a quad: which of the six pairs of columns (kPairs) it keeps
//
// Where a scale is for a whole row, a unit is 32 weights without a scale, and a group
// of rows begins with their scales in f32.
#pragma once

#include "definition.h"
#include "pairs.h"
#include "tenon/sdk/cpu/packed_rows.h"

namespace tenon::sparse24 {

template <uint32_t kIndex>
struct PackedGroup {
  static constexpr uint32_t kGroup = kGroups[kIndex] != 0 ? kGroups[kIndex] : kUnit, kUnits = kGroup / kUnit;
  static constexpr uint32_t kHeader = kGroups[kIndex] != 0 ? kHalfBytes : 0;  // a row's scale takes so many bytes

  static void pack(const uint8_t* group, uint32_t row, uint8_t* unit) {
    if constexpr (kHeader != 0) sdk::cpu::copy_half(unit, row, group);
    uint8_t* to = unit + sdk::cpu::kGroupRows * kHeader;
    for (uint32_t u = 0; u < kUnits; ++u, to += 192) {
      uint32_t words[3] = {};  // (quads 0 to 3, quads 4 to 7, pairs)
      for (uint32_t q = 0; q < kQuads; ++q) {
        const Quad quad = quad_at(group + kHeader + u * kUnitBytes, q);
        words[q / 4] |= (quad.integers & 15) << 4 * (q % 4) | quad.integers >> 4 << (16 + 4 * (q % 4));
        words[2] |= pair_of(quad.columns) << 4 * q;
      }
      for (uint32_t w = 0; w < 3; ++w) sdk::cpu::put_step(to, w, row, words[w]);
    }
  }
  static void unpack(const uint8_t* unit, uint32_t row, float* w) {
    const float scale =
        kHeader != 0 ? sdk::half_to_float(static_cast<uint16_t>(unit[2 * row] | unit[2 * row + 1] << 8)) : 1;
    const uint8_t* from = unit + sdk::cpu::kGroupRows * kHeader + 4 * size_t{row};
    std::fill_n(w, kGroup, 0.0F);
    for (uint32_t u = 0; u < kUnits; ++u, from += 192, w += kUnit) {
      uint32_t words[3];
      for (uint32_t i = 0; i < 3; ++i) std::memcpy(words + i, from + 64 * size_t{i}, sizeof(words[i]));
      for (uint32_t q = 0; q < kQuads; ++q) {
        const Kept pair = kPairs[words[2] >> 4 * q & 15];
        const auto weight = [&](uint32_t shift) {
          return scale * static_cast<float>(static_cast<int>((words[q / 4] >> shift & 15) ^ 8) - 8);
        };
        w[4 * q + pair.first] = weight(4 * (q % 4));
        w[4 * q + pair.second] = weight(16 + 4 * (q % 4));
      }
    }
  }

  static constexpr sdk::cpu::Packing kPacking{sdk::cpu::kOwnFormats + kIndex,
                                              kGroup,
                                              sdk::cpu::kGroupRows*(kHeader + kUnits * kUnitBytes),
                                              &pack,
                                              &unpack,
                                              kHeader == 0};
};

inline const sdk::cpu::Packing* packing_of(uint32_t code) {
  static constexpr const sdk::cpu::Packing* kAll[] = {&PackedGroup<0>::kPacking, &PackedGroup<1>::kPacking,
                                                      &PackedGroup<2>::kPacking, &PackedGroup<3>::kPacking};
  return kAll[code - sdk::cpu::kOwnFormats];
}

}  // namespace tenon::sparse24
