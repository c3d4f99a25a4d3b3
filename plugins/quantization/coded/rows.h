// These are rows of codes as the products of a CPU read them (tenon/sdk/cpu/products.h). They are for
// kernels.cc of a scheme's folder, which is compiled once for each instruction set: what is called there at
// run time stands in an anonymous namespace.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "quantize.h"
#include "tenon/sdk/cpu/coded_rows.h"
#include "tenon/sdk/cpu/products.h"

namespace tenon::coded {
namespace {

inline float float_at(const uint8_t* p) {
  float f;
  memcpy(&f, p, sizeof(f));
  return f;
}
inline float bf16_at(const uint8_t* p) {
  uint8_t bytes[4] = {0, 0, p[0], p[1]};
  return float_at(bytes);
}

inline float half_at(const uint8_t* p) {
#if defined(__AVX2__)
  return sdk::cpu::half_scale(p);
#else
  return sdk::half_to_float(static_cast<uint16_t>(p[0] | p[1] << 8));
#endif
}

// Returns 2^(c - 127).
inline float power_at(const uint8_t* p) {
  const uint32_t bits = *p == 0 ? 0x00400000U : uint32_t{*p} << 23;
  float power;
  memcpy(&power, &bits, sizeof(power));
  return power;
}
// Returns a number in e4m3, whose bits are those of a half that is 256 times smaller.
inline float e4m3_at(const uint8_t* p) {
  const uint32_t bits = (*p & 127U) << 7 | (*p & 128U) << 8;
  const uint8_t half[2] = {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)};
  return half_at(half) * 256;
}

// Decoder<kScaling, Codes>(group) reads a group's scale; called with 16 codes it gives their
// weights, up to kFactor and to the row's scale.
template <Scaling kScaling, class Codes>
class Decoder;

template <Scaling kScaling, class Book>
class Decoder<kScaling, BookCodes<Book>> {
 public:
  static constexpr float kFactor = 1;
  explicit Decoder(const uint8_t* group)
      : book_(kValues, kScaling == Scaling::kGroup      ? float_at(group)
                       : kScaling == Scaling::kExponent ? power_at(group)
                                                        : static_cast<float>(*group)) {}
  sdk::cpu::Floats16 operator()(auto codes) const { return book_(codes); }

 private:
  struct Values {
    float v[16];
  };
  static constexpr Values values() {
    Values all{};
    for (uint32_t i = 0; i < 16; ++i) all.v[i] = Book::value(i);
    return all;
  }
  static constexpr Values kAll = values();
  static constexpr const float (&kValues)[16] = kAll.v;

  sdk::cpu::Codebook book_;
};

// A unit has two scales, of its first sixteen codes and of the others, which second() takes.
template <class Book>
class Decoder<Scaling::kSixteens, BookCodes<Book>> {
 public:
  static constexpr float kFactor = 1;
  explicit Decoder(const uint8_t* group) : first_(kAll.v, e4m3_at(group)), second_(kAll.v, e4m3_at(group + 1)) {}
  sdk::cpu::Floats16 operator()(auto codes) const { return first_(codes); }
  sdk::cpu::Floats16 second(auto codes) const { return second_(codes); }

 private:
  struct Values {
    float v[16];
  };
  static constexpr Values values() {
    Values all{};
    for (uint32_t i = 0; i < 16; ++i) all.v[i] = Book::value(i);
    return all;
  }
  static constexpr Values kAll = values();

  sdk::cpu::Codebook first_, second_;
};

template <uint32_t kExponent, uint32_t kMantissa>
class Decoder<Scaling::kRow, BookCodes<sdk::SmallFloat<kExponent, kMantissa>>> {
 public:
  using Small = sdk::SmallFloat<kExponent, kMantissa>;
  static constexpr float kFactor = Small::kUnit;
  explicit Decoder(const uint8_t*) {}
  sdk::cpu::Floats16 operator()(auto codes) const { return sdk::cpu::small_floats<Small>(codes); }
};

// A group of small floats begins with its scale, which takes the unit of the floats in.
template <uint32_t kExponent, uint32_t kMantissa>
class Decoder<Scaling::kGroup, BookCodes<sdk::SmallFloat<kExponent, kMantissa>>> {
 public:
  using Small = sdk::SmallFloat<kExponent, kMantissa>;
  static constexpr float kFactor = 1;
  explicit Decoder(const uint8_t* group) : scale_(sdk::cpu::Floats16::all(float_at(group) * Small::kUnit)) {}
  sdk::cpu::Floats16 operator()(auto codes) const { return mul(sdk::cpu::small_floats<Small>(codes), scale_); }

 private:
  sdk::cpu::Floats16 scale_;
};

// scale * code and scale * zero are exact, since a scale has 8 or 11 bits and a code 8; so is their difference.
template <Scaling kScaling, uint32_t kBits>
class Decoder<kScaling, IntegerCodes<kBits>> {
 public:
  static_assert(kScaling == Scaling::kZeroPoint || kScaling == Scaling::kHalfZeroPoint);
  static constexpr float kFactor = 1;
  explicit Decoder(const uint8_t* group) : Decoder(scale_at(group), static_cast<float>(group[2])) {}
  sdk::cpu::Floats16 operator()(auto codes) const { return weights_(codes); }

 private:
  static float scale_at(const uint8_t* group) {
    if constexpr (kScaling == Scaling::kHalfZeroPoint) return half_at(group);
    return bf16_at(group);
  }
  Decoder(float scale, float zero) : weights_(scale, -(scale * zero)) {}

  sdk::cpu::ScaledCodes<kBits> weights_;
};

// A unit begins with the scales of its four eights, then has their zero points. What is said above holds of these, too.
template <uint32_t kBits>
class Decoder<Scaling::kEights, IntegerCodes<kBits>> {
 public:
  static constexpr float kFactor = 1;
  explicit Decoder(const uint8_t* unit)
      : scale_(sdk::cpu::OfEights::scales(unit)), offset_(sdk::cpu::OfEights::offsets(scale_, unit + 8)) {}
  sdk::cpu::Floats16 operator()(auto codes) const { return weights<0>(codes); }
  sdk::cpu::Floats16 second(auto codes) const { return weights<2>(codes); }

 private:
  template <int kFrom>
  sdk::cpu::Floats16 weights(auto codes) const {
    return fma(sdk::cpu::floats_of(codes), scale_.spread<kFrom>(), offset_.spread<kFrom>());
  }

  sdk::cpu::OfEights scale_, offset_;
};

template <uint32_t kBits>
class Decoder<Scaling::kOffset, IntegerCodes<kBits>> {
 public:
  static constexpr float kFactor = 1;
  explicit Decoder(const uint8_t* group) : weights_(float_at(group), float_at(group + 4)) {}
  sdk::cpu::Floats16 operator()(auto codes) const { return weights_(codes); }

 private:
  sdk::cpu::ScaledCodes<kBits> weights_;
};

// Codes of a row with one scale are signed numbers, with half of their range added.
template <uint32_t kBits>
class Decoder<Scaling::kRow, IntegerCodes<kBits>> {
 public:
  static constexpr float kFactor = 1;
  explicit Decoder(const uint8_t*) {}
  sdk::cpu::Floats16 operator()(auto codes) const {
    return fma(sdk::cpu::floats_of(codes), sdk::cpu::Floats16::all(1),
               sdk::cpu::Floats16::all(-static_cast<float>(1U << (kBits - 1))));
  }
};

// Returns the weights of a unit's second sixteen codes.
template <class Decode>
sdk::cpu::Floats16 second_of(const Decode& weights, auto codes) {
  if constexpr (requires { weights.second(codes); })
    return weights.second(codes);
  else
    return weights(codes);
}

// Says whether a row decodes two units of the coding at once.
template <class Decode>
constexpr bool in_pairs([[maybe_unused]] const Coding& coding) {
#if defined(__AVX512VBMI__)
  if constexpr (requires { typename Decode::Small; }) {
    return coding.bits == 8 && (coding.scaling == Scaling::kRow || coding.units() % 2 == 0);
  }
#endif
  return false;
}

// This is a StoredRow of coding kIndex of a scheme.
template <class Schema, uint32_t kIndex>
struct CodedRow {
  static constexpr Coding kCoding = Schema::kCodings[kIndex];
  using Decode = Decoder<kCoding.scaling, typename Schema::template Codes<kIndex>>;

  static constexpr uint32_t kCode = sdk::cpu::kOwnFormats + kIndex;
  static constexpr uint32_t kHeader = kCoding.row_header();
  static constexpr uint32_t kColumns = 2;
  static constexpr uint32_t kGroupHeader = kCoding.group_header(), kUnitBytes = sdk::unit_bytes(kCoding.bits);
  static constexpr bool kInPairs = in_pairs<Decode>(kCoding);
  static constexpr uint32_t kUnits = kInPairs ? std::max(kCoding.units(), 2U) : kCoding.units();
  static constexpr uint32_t kElements = kUnits * sdk::kUnitCodes;
  static constexpr size_t kBytes = kGroupHeader + kUnits * kUnitBytes;

  static float scale(const uint8_t* row) { return kHeader != 0 ? float_at(row) * Decode::kFactor : 1; }
  template <class Sink>
  static void block(const uint8_t* group, Sink&& sink) {
    const Decode weights(group);
    const uint8_t* unit = group + kGroupHeader;
    if constexpr (kInPairs) {
#pragma GCC unroll 8
      for (uint32_t u = 0; u < kUnits; u += 2, unit += 2 * kUnitBytes) put_pair(weights, unit, 2 * u, sink);
    } else {
#pragma GCC unroll 8
      for (uint32_t u = 0; u < kUnits; ++u, unit += kUnitBytes) put_unit(weights, unit, 2 * u, sink);
    }
  }
  // A row of pairs may end with the first unit of one.
  template <class Sink>
  static void last_block(const uint8_t* unit, uint32_t n, Sink&& sink)
    requires(kInPairs && kCoding.group == sdk::kUnitCodes)
  {
    if (n > sdk::kUnitCodes) return block(unit, sink);
    put_unit(Decode(unit), unit, 0, sink);
  }

 private:
  template <class Sink>
  static void put_unit(const Decode& weights, const uint8_t* unit, uint32_t first, Sink&& sink) {
    const auto codes = sdk::cpu::unit_codes<kCoding.bits>(unit);
    sink(first, weights(codes.first));
    sink(first + 1, second_of(weights, codes.second));
  }
#if defined(__AVX512VBMI__)
  template <class Sink>
  static void put_pair(const Decode& weights, const uint8_t* units, uint32_t first, Sink&& sink) {
    const auto codes = sdk::cpu::two_units<typename Decode::Small>(units);
    sink(first, weights(codes.first));
    sink(first + 1, weights(codes.second));
    sink(first + 2, weights(codes.third));
    sink(first + 3, weights(codes.fourth));
  }
#endif
};

// Returns the row formats of all codings of a scheme.
template <class Schema>
constexpr auto row_formats() {
  constexpr size_t kCount = std::size(Schema::kCodings);
  const auto all = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array<sdk::cpu::RowFormat, kCount>{sdk::cpu::row_format<CodedRow<Schema, kIndex>>()...};
  };
  return all(std::make_index_sequence<kCount>{});
}

}  // namespace
}  // namespace tenon::coded
