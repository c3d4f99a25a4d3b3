// These are packed rows of codes (packings.h) as products of x in 16 bits read them
// (tenon/sdk/cpu/wide_products.h). They are for products.cc of a scheme's folder, which is compiled for the
// instruction sets that have dot products of bytes.
#pragma once

#include <array>
#include <utility>

#include "books.h"
#include "kernels.h"
#include "quantize.h"
#include "tenon/sdk/cpu/wide_products.h"

namespace tenon::coded {
namespace {

using sdk::cpu::PackedUnit, sdk::cpu::RowCodes, sdk::cpu::RowFloats, sdk::cpu::RowWords;

// Each byte's bits from `from` on become those from `to` on; the others are anything.
template <uint32_t kFrom, uint32_t kTo>
inline RowCodes moved(RowCodes c) {
  if constexpr (kFrom > kTo) return sdk::cpu::shifted<kFrom - kTo>(c);
  if constexpr (kFrom < kTo) return sdk::cpu::raised<kTo - kFrom>(c);
  return c;
}

// Puts a plane of kPlane bits, whose words begin at `at` in the unit, into bits kBit and on of 32 codes.
template <uint32_t kPlane, uint32_t kBit>
[[gnu::always_inline]] inline void put_plane(const PackedUnit& unit, size_t at, RowCodes (&code)[8]) {
  constexpr int kMask = ((1 << kPlane) - 1) << kBit;
  const auto put = [&]<uint32_t kStep>(std::integral_constant<uint32_t, kStep>) {
    constexpr uint32_t kWord = kStep % kPlane, kFrom = kStep / kPlane * kPlane;
    const RowCodes c = moved<kFrom, kBit>(unit.codes(at + 64 * size_t{kWord}));
    code[kStep] = kBit == 0 ? sdk::cpu::shifted<0>(c, kMask) : sdk::cpu::joined(code[kStep], c, kMask);
  };
  [&]<uint32_t... kStep>(std::integer_sequence<uint32_t, kStep...>) {
    (put(std::integral_constant<uint32_t, kStep>{}), ...);
  }(std::make_integer_sequence<uint32_t, 8>{});
}

// Unpacks the 32 codes of kBits bits whose words begin at `at`.
template <uint32_t kBits>
[[gnu::always_inline]] inline void unpack_codes(const PackedUnit& unit, size_t at, RowCodes (&code)[8]) {
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (uint32_t s = 0; s < 8; ++s) code[s] = unit.codes(at + 64 * size_t{s});
  } else {
    constexpr uint32_t kFour = kBits & 4U, kTwo = kBits & 2U, kOne = kBits & 1U;
    if constexpr (kFour != 0) put_plane<4, 0>(unit, at, code);
    if constexpr (kTwo != 0) put_plane<2, kFour>(unit, at + 64 * size_t{kFour}, code);
    if constexpr (kOne != 0) put_plane<1, kFour + kTwo>(unit, at + 64 * size_t{kFour + kTwo}, code);
  }
}

// Unpacks the 32 codes of 3 bits in bytes (lanes.h).
template <>
[[gnu::always_inline]] inline void unpack_codes<3>(const PackedUnit& unit, size_t at, RowCodes (&code)[8]) {
  const RowCodes word[3] = {unit.codes(at), unit.codes(at + 64), unit.codes(at + 128)};
#pragma GCC unroll 3
  for (uint32_t w = 0; w < 3; ++w) {
    code[2 * w] = sdk::cpu::shifted<0>(word[w], 7);
    code[2 * w + 1] = sdk::cpu::shifted<3>(word[w], 7);
  }
  code[6] = sdk::cpu::joined(sdk::cpu::shifted<6>(word[0], 3), sdk::cpu::shifted<4>(word[2]), 4);
  code[7] = sdk::cpu::joined(sdk::cpu::shifted<6>(word[1], 3), sdk::cpu::shifted<5>(word[2]), 4);
}

// PackedScales<kScaling> reads a unit's scales, and what its weights have besides scale * (code - offset).
template <Scaling kScaling>
struct PackedScales;

template <>
struct PackedScales<Scaling::kZeroPoint> {
  static constexpr bool kMinima = true;
  explicit PackedScales(const PackedUnit& unit)
      : scale(unit.bfloats(0)), minimum(negative(mul(scale, unit.bytes_without_sign(32)))) {}
  RowFloats scale, minimum;
};
template <>
struct PackedScales<Scaling::kHalfZeroPoint> {
  static constexpr bool kMinima = true;
  explicit PackedScales(const PackedUnit& unit)
      : scale(unit.halves(0)), minimum(negative(mul(scale, unit.bytes_without_sign(32)))) {}
  RowFloats scale, minimum;
};
template <>
struct PackedScales<Scaling::kOffset> {
  static constexpr bool kMinima = true;
  explicit PackedScales(const PackedUnit& unit) : scale(unit.floats(0)), minimum(unit.floats(64)) {}
  RowFloats scale, minimum;
};
template <>
struct PackedScales<Scaling::kGroup> {
  static constexpr bool kMinima = false;
  explicit PackedScales(const PackedUnit& unit) : scale(unit.floats(0)) {}
  RowFloats scale;
};
template <>
struct PackedScales<Scaling::kTwoLevel> {
  static constexpr bool kMinima = false;
  explicit PackedScales(const PackedUnit& unit) : scale(unit.bytes_without_sign(0)) {}
  RowFloats scale;
};
template <>
struct PackedScales<Scaling::kRow> {
  static constexpr bool kMinima = false;
  explicit PackedScales(const PackedUnit&) : scale(RowFloats::all(1)) {}
  RowFloats scale;
};

// All packed codings have this.
template <class Schema, uint32_t kIndex>
struct PackedCoding : PackedUnit {
  static constexpr Coding kCoding = Schema::kCodings[kIndex];
  using Scales = PackedScales<kCoding.scaling>;
  static constexpr uint32_t kCode = sdk::cpu::kOwnFormats + kIndex,
                            kUnitBytes = sdk::cpu::kGroupRows * kCoding.group_bytes(), kBlocks = kCoding.units();
  static constexpr bool kRowScales = kCoding.row_header() != 0;

  explicit PackedCoding(const PackedUnit& unit) : PackedUnit(unit), scales(unit) {}
  static constexpr size_t codes_at(uint32_t b) {
    return size_t{sdk::cpu::kGroupRows} * kCoding.group_header() + b * size_t{64} * kCoding.bits;
  }
  void codes_of(uint32_t b, RowCodes (&code)[8]) const { unpack_codes<kCoding.bits>(*this, codes_at(b), code); }
  Scales scales;
};

// WideRow<Schema, kIndex, Codes> is a format of wide_products.h.
template <class Schema, uint32_t kIndex, class Codes>
struct WideRow;

template <class Schema, uint32_t kIndex, uint32_t kBits>
struct WideRow<Schema, kIndex, IntegerCodes<kBits>> : PackedCoding<Schema, kIndex> {
  using Base = PackedCoding<Schema, kIndex>;
  static constexpr bool kMinima = Base::Scales::kMinima;
  static constexpr int kOffset = Base::kCoding.scaling == Scaling::kRow ? 1 << (kBits - 1) : 0;

  using Base::Base;
  sdk::cpu::PackedBlock<1> block(uint32_t b) const {
    sdk::cpu::PackedBlock<1> out;
    out.scale = this->scales.scale;
    if constexpr (kMinima) out.minimum = this->scales.minimum;
    this->codes_of(b, out.code);
    return out;
  }
};

// A book's values are integers of so many steps of the largest one. Those of nf4, in two bytes, are
// within 7.9e-6 of it, the least that any number of steps up to 32639 gives. The others are exact,
// and so small that they meet x in 16 bits.
template <class Book>
constexpr int kSteps = 0;
template <>
inline constexpr int kSteps<NormalFloat4> = 31908;
template <>
inline constexpr int kSteps<Float4> = 192;
template <uint32_t kExponent, uint32_t kMantissa>
constexpr int kSteps<sdk::SmallFloat<kExponent, kMantissa>> =
    static_cast<int>(sdk::SmallFloat<kExponent, kMantissa>::kLargest / sdk::SmallFloat<kExponent, kMantissa>::value(1));

template <class Book>
constexpr bool kSmallSteps = kSteps<Book> < 1 << 11;

template <class Book>
constexpr int steps_of(uint32_t code) {
  const double steps = double{Book::value(code)} / double{Book::kLargest} * kSteps<Book>;
  return static_cast<int>(steps < 0 ? steps - 0.5 : steps + 0.5);
}

// Under AVX-512 one look-up gives a number of 16 bits.
#if defined(__AVX512VNNI__)

// Unpacks the 32 codes of kBits bits in words, lowest bits first; above them lies anything.
template <uint32_t kBits>
[[gnu::always_inline]] inline void unpack_words(const PackedUnit& unit, size_t at, RowWords (&code)[16]) {
  using sdk::cpu::shifted, sdk::cpu::joined;
  RowWords word[kBits];
#pragma GCC unroll 6
  for (uint32_t w = 0; w < kBits; ++w) word[w] = RowWords::load(unit.bytes + at + 64 * size_t{w});
  if constexpr (kBits == 4) {  // steps of bytes, of which a word has the even ones and the odd ones
#pragma GCC unroll 4
    for (uint32_t w = 0; w < 4; ++w) {
      code[2 * w] = word[w];
      code[2 * w + 1] = shifted<8>(word[w]);
      code[2 * w + 8] = shifted<4>(word[w]);
      code[2 * w + 9] = shifted<12>(word[w]);
    }
  } else if constexpr (kBits == 5) {
#pragma GCC unroll 5
    for (uint32_t w = 0; w < 5; ++w) {
      code[3 * w] = word[w];
      code[3 * w + 1] = shifted<5>(word[w]);
      code[3 * w + 2] = shifted<10>(word[w]);
    }
    code[15] = joined(shifted<15>(word[0]), shifted<14>(word[1]), 2);
    code[15] = joined(code[15], shifted<13>(word[2]), 4);
    code[15] = joined(code[15], shifted<12>(word[3]), 8);
    code[15] = joined(code[15], shifted<11>(word[4]), 16);
  } else {
    static_assert(kBits == 6);
#pragma GCC unroll 2
    for (uint32_t half = 0; half < 2; ++half) {
      const RowWords* three = word + 3 * half;
      RowWords* eight = code + 8 * half;
#pragma GCC unroll 3
      for (uint32_t w = 0; w < 3; ++w) {
        eight[2 * w] = three[w];
        eight[2 * w + 1] = shifted<6>(three[w]);
      }
      eight[6] = joined(shifted<12>(three[0]), shifted<8>(three[2]), 0x30);
      eight[7] = joined(shifted<12>(three[1]), shifted<10>(three[2]), 0x30);
    }
  }
}

template <class Schema, uint32_t kIndex, class Book>
  requires(kSmallSteps<Book>)
struct WideRow<Schema, kIndex, BookCodes<Book>> : PackedCoding<Schema, kIndex> {
  using Base = PackedCoding<Schema, kIndex>;
  static constexpr bool kMinima = false;
  static constexpr int kOffset = 0;

  using Base::Base;
  sdk::cpu::WordBlock block(uint32_t b) const {
    sdk::cpu::WordBlock out;
    out.scale = mul(this->scales.scale, RowFloats::all(Book::kLargest / kSteps<Book>));
    unpack_words<kBits>(*this, Base::codes_at(b), out.word);
#pragma GCC unroll 16
    for (RowWords& w : out.word) w = looked_up(kTable.steps, w);
    return out;
  }

 private:
  static constexpr uint32_t kBits = Base::kCoding.bits;
  struct Table {
    int16_t steps[kBits == 6 ? 64 : 32];
  };
  static constexpr Table kTable = [] {
    Table all{};
    for (uint32_t i = 0; i < std::size(all.steps); ++i) {
      all.steps[i] = static_cast<int16_t>(steps_of<Book>(i % (1U << kBits)));
    }
    return all;
  }();
};

#endif

template <class Schema, uint32_t kIndex, class Book>
struct WideRow<Schema, kIndex, BookCodes<Book>> : PackedCoding<Schema, kIndex> {
  using Base = PackedCoding<Schema, kIndex>;
  static constexpr bool kMinima = false;
  static constexpr int kOffset = 128;
  using Block = std::conditional_t<kSmallSteps<Book>, sdk::cpu::ExactBlock, sdk::cpu::WideBlock>;

  using Base::Base;
  Block block(uint32_t b) const {
    constexpr float kSum = kSmallSteps<Book> ? 1 : 256;  // The block's sum is a multiple of this.
    Block out;
    out.scale = mul(this->scales.scale, RowFloats::all(kSum * Book::kLargest / kSteps<Book>));
    RowCodes code[8];
    this->codes_of(b, code);
#pragma GCC unroll 8
    for (uint32_t s = 0; s < 8; ++s) {
      out.code[s] = looked_up(kBytes.high, code[s]);
      out.low[s] = looked_up(kBytes.low, code[s]);
    }
    return out;
  }

 private:
  struct Bytes {
    uint8_t high[16], low[16];
  };
  static constexpr Bytes kBytes = [] {
    Bytes all{};
    for (uint32_t i = 0; i < 16; ++i) {
      const int steps = steps_of<Book>(i), high = (steps + 32768 + 128) / 256 - 128;
      all.high[i] = static_cast<uint8_t>(high + kOffset);
      all.low[i] = static_cast<uint8_t>(steps - 256 * high + kOffset);
    }
    return all;
  }();
};

// Returns the packed formats of a scheme's codings that pack.
template <class Schema>
constexpr auto wide_formats() {
  constexpr size_t kCount = packing_codings(Schema::kCodings);
  return []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array<sdk::cpu::PackedFormat, kCount>{
        sdk::cpu::wide_format<WideRow<Schema, kIndex, typename Schema::template Codes<kIndex>>>()...};
  }(std::make_index_sequence<kCount>{});
}

}  // namespace
}  // namespace tenon::coded

// products.cc of a scheme defines the products of its codings with this.
#define TENON_CODED_PRODUCTS(SCHEMA)                                                                  \
  namespace tenon::coded {                                                                            \
  namespace {                                                                                         \
  constexpr auto kWideFormats = wide_formats<SCHEMA>();                                               \
  }                                                                                                   \
  constinit const sdk::cpu::PackedTable TENON_ISA::kPacked{kWideFormats.data(), kWideFormats.size()}; \
  }                                                                                                   \
  static_assert(true)  // it takes the semicolon
