// This packs a row of a coding, sixteen rows side by side (tenon/sdk/cpu/packed_rows.h), for products of x in 16 bits.
// Every bit stays; only where it lies changes. A unit is a group of the coding:
//
//   the group's fields, each for sixteen rows                      16 * group_header() bytes
//   for each 32 codes the words of four bytes of a row's lane      64 * bits bytes
//   (lanes.h), each for sixteen rows
//
// and a group of sixteen rows begins with their scales where the coding has scales of rows. So word w of a row is lane
// `row` of vector w; where lanes are planes,
//
//   plane of 4 bits   word i of 4: steps i and i + 4 in the lower and the upper half of its bytes
//   plane of 2 bits   word i of 2: steps i, i + 2, i + 4 and i + 6
//   plane of 1 bit    one word: steps 0 to 7
//   8 bits            word s: step s
//
// For code compiled for the base machine only.
#pragma once

#include <array>
#include <cstring>
#include <utility>

#include "coding.h"
#include "kernels.h"
#include "lanes.h"
#include "tenon/sdk/cpu/packed_rows.h"

namespace tenon::coded {

// Calls f(offset in a row's group, bytes) for each of the group's fields.
template <class F>
constexpr void each_group_field(const Coding& c, const F& f) {
  uint32_t at = 0;
  for (const Field& field : c.fields()) {
    if (!field.grouped) continue;
    f(at, field.bytes);
    at += field.bytes;
  }
}

template <class Schema, uint32_t kIndex>
struct PackedGroup {
  static constexpr Coding kCoding = Schema::kCodings[kIndex];
  static constexpr uint32_t kRows = sdk::cpu::kGroupRows, kWord = 4, kLane = sdk::unit_bytes(kCoding.bits),
                            kField = kFieldBits<typename Schema::template Codes<kIndex>>;

  static void pack(const uint8_t* group, uint32_t row, uint8_t* unit) {
    each_group_field(
        kCoding, [&](uint32_t at, uint32_t bytes) { std::memcpy(unit + kRows * at + row * bytes, group + at, bytes); });
    for (uint32_t at = kCoding.group_header(); at < kCoding.group_bytes(); at += kLane) {
      uint8_t lane[kLane];
      make_lane<kCoding.bits, kField>(group + at, lane);
      for (uint32_t w = 0; w < kLane; w += kWord) {
        std::memcpy(unit + kRows * (at + w) + row * kWord, lane + w, kWord);
      }
    }
  }
  // Plain code's kernel makes the weights of a row of one group, whose own scale is 1.
  static void unpack(const uint8_t* unit, uint32_t row, float* w) {
    constexpr float kOne = 1;
    uint8_t alone[kCoding.row_header() + kCoding.group_bytes()];
    if constexpr (kCoding.row_header() != 0) std::memcpy(alone, &kOne, sizeof(kOne));
    uint8_t* group = alone + kCoding.row_header();
    each_group_field(
        kCoding, [&](uint32_t at, uint32_t bytes) { std::memcpy(group + at, unit + kRows * at + row * bytes, bytes); });
    for (uint32_t at = kCoding.group_header(); at < kCoding.group_bytes(); at += kLane) {
      uint8_t lane[kLane];
      for (uint32_t i = 0; i < kLane; i += kWord) {
        std::memcpy(lane + i, unit + kRows * (at + i) + row * kWord, kWord);
      }
      make_unit<kCoding.bits, kField>(lane, group + at);
    }
    const float scale = scalar::kKernels.find(kCode)->unpack(alone, kCoding.group, w);
    for (uint32_t i = 0; i < kCoding.group; ++i) w[i] *= scale;
  }

  static constexpr uint32_t kCode = sdk::cpu::kOwnFormats + kIndex;
  static constexpr sdk::cpu::Packing kPacking{kCode, kCoding.group, sdk::cpu::kGroupRows* kCoding.group_bytes(),
                                              &pack, &unpack,       kCoding.row_header() != 0};
};

// Returns how the coding of a row format is packed; null if it does not pack.
template <class Schema>
const sdk::cpu::Packing* packing_of(uint32_t code) {
  constexpr size_t kCount = packing_codings(Schema::kCodings);
  static constexpr auto kAll = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array<const sdk::cpu::Packing*, kCount>{&PackedGroup<Schema, kIndex>::kPacking...};
  }(std::make_index_sequence<kCount>{});
  const size_t index = code - sdk::cpu::kOwnFormats;
  return index < kCount ? kAll[index] : nullptr;
}

// Returns the kernels of a scheme that TENON_CODED_PRODUCTS makes products of.
template <class Schema>
sdk::cpu::Kernels wide_kernels(sdk::cpu::Isa isa) {
  return wide_kernels(isa, &packing_of<Schema>);
}

}  // namespace tenon::coded
