// These are packed rows of e2m1 as products of x in 16 bits read them (../coded/wide_rows.h). Twice a value is an
// integer from -12 to 12, so a weight is one byte, and half its scale.
#pragma once

#include "../coded/wide_rows.h"

namespace tenon::coded {
namespace {

// The least power of two of a group, 2^-127, is no normal number.
template <>
struct PackedScales<Scaling::kExponent> {
  explicit PackedScales(const PackedUnit& unit)
      : scale(max(power_of_two(sub(unit.bytes_without_sign(0), RowFloats::all(127))), RowFloats::all(0x1p-127F))) {}
  RowFloats scale;
};

// It has two numbers in e4m3, one of either half of 32 weights.
template <>
struct PackedScales<Scaling::kSixteens> {
  explicit PackedScales(const PackedUnit& unit) : scale{e4m3<0>(unit), e4m3<1>(unit)} {}
  RowFloats scale[2];

 private:
  // The bits of a number without a sign are those of a half that is 256 times smaller.
  template <uint32_t kByte>
  static RowFloats e4m3(const PackedUnit& unit) {
    uint16_t half[sdk::cpu::kSide];
    memcpy(half, unit.bytes + sizeof(half) * unit.side, sizeof(half));
    for (uint16_t& h : half) h = static_cast<uint16_t>((h >> 8 * kByte & 127) << 7);
    return mul(RowFloats::decode<TENON_F16>(half), RowFloats::all(256));
  }
};

template <class Schema, uint32_t kIndex>
struct WideRow<Schema, kIndex, BookCodes<E2m1>> : PackedCoding<Schema, kIndex> {
  using Base = PackedCoding<Schema, kIndex>;
  static constexpr bool kMinima = false, kHalves = Base::kCoding.scaling == Scaling::kSixteens;
  static constexpr int kOffset = 16;
  using Block = std::conditional_t<kHalves, sdk::cpu::HalvesBlock, sdk::cpu::PackedBlock<1>>;

  using Base::Base;
  Block block(uint32_t b) const {
    const RowFloats half = RowFloats::all(0.5F);
    Block out;
    if constexpr (kHalves) {
      out.scale = half;
      out.half_scale[0] = this->scales.scale[0];
      out.half_scale[1] = this->scales.scale[1];
    } else {
      out.scale = mul(this->scales.scale, half);
    }
    RowCodes code[8];
    this->codes_of(b, code);
#pragma GCC unroll 8
    for (uint32_t s = 0; s < 8; ++s) out.code[s] = looked_up(kTwiceValues.byte, code[s]);
    return out;
  }

 private:
  struct Bytes {
    uint8_t byte[16];
  };
  static constexpr Bytes twice_values() {
    Bytes all{};
    for (uint32_t i = 0; i < 16; ++i)
      all.byte[i] = static_cast<uint8_t>(static_cast<int>(2 * E2m1::value(i)) + kOffset);
    return all;
  }
  static constexpr Bytes kTwiceValues = twice_values();
};

}  // namespace
}  // namespace tenon::coded
