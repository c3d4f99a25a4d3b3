// This makes vectors of weights from units of packed codes (tenon/sdk/packed_codes.h): look-ups in a codebook, small
// floats, integers. It is for the one source of an instruction set, see vector.h; all sets give the same bits.
#pragma once

#include <limits>

#include "tenon/sdk/cpu/vector.h"
#include "tenon/sdk/packed_codes.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::sdk::cpu {
namespace {

#if defined(__AVX2__)

// These are sixteen codes, a byte each.
using Codes16 = __m128i;

// These are the codes of a unit's first sixteen weights and of the others.
struct UnitCodes {
  Codes16 first, second;
};

// Returns a plane's bits of all codes of a unit, a byte each.
template <uint32_t kPlane>
inline __m256i plane_codes(const uint8_t* plane) {
  const __m256i mask = _mm256_set1_epi8((1 << kPlane) - 1);
  if constexpr (kPlane == 4) {
    return _mm256_and_si256(
        _mm256_srlv_epi64(_mm256_broadcastsi128_si256(load_bytes(plane)), _mm256_setr_epi64x(0, 0, 4, 4)), mask);
  } else if constexpr (kPlane == 2) {
    int64_t word;
    memcpy(&word, plane, sizeof(word));
    return _mm256_and_si256(_mm256_srlv_epi64(_mm256_set1_epi64x(word), _mm256_setr_epi64x(0, 2, 4, 6)), mask);
  } else {
    int32_t word;
    memcpy(&word, plane, sizeof(word));
    return _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                            mask);
  }
}
template <uint32_t kBits>
inline __m256i joined_planes(const uint8_t* unit) {
  if constexpr (kBits == 4 || kBits == 2 || kBits == 1) {
    return plane_codes<kBits>(unit);
  } else {
    constexpr uint32_t kPlane = kBits > 4 ? 4 : 2;
    const __m256i upper = joined_planes<kBits - kPlane>(unit + 4 * kPlane);
    return _mm256_or_si256(plane_codes<kPlane>(unit), _mm256_slli_epi16(upper, kPlane));
  }
}

#if defined(__AVX512F__)

// The lowest bits of each lane are one of sixteen codes; other bits may be above them.
template <uint32_t kBits>
struct Lanes16 {
  __m512i v;
};
template <uint32_t kBits>
struct UnitLanes {
  Lanes16<kBits> first, second;
};

// Bytes become lanes once for a unit, and shifts bring each lane its code.
template <uint32_t kBits>
  requires(kBits >= 2 && kBits <= 4)
inline UnitLanes<kBits> unit_codes(const uint8_t* unit) {
  if constexpr (kBits == 4) {
    const __m512i pairs = _mm512_cvtepu8_epi32(load_bytes(unit));
    return {{pairs}, {_mm512_srli_epi32(pairs, 4)}};
  } else {
    int64_t word;
    memcpy(&word, unit, sizeof(word));
    const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512i first = _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_set1_epi64x(word)), shifts);
    const __m512i second = _mm512_srli_epi32(first, 4);
    if constexpr (kBits == 2) return {{first}, {second}};
    int32_t upper;
    memcpy(&upper, unit + 8, sizeof(upper));
    // Lane i turns right until bit 8 (i % 4) + i / 4, the upper one of code i, is bit 2.
    const __m512i turns = _mm512_setr_epi32(30, 6, 14, 22, 31, 7, 15, 23, 0, 8, 16, 24, 1, 9, 17, 25);
    const __m512i turned = _mm512_rorv_epi32(_mm512_set1_epi32(upper), turns);
    const __m512i upper_bit = _mm512_set1_epi32(4);
    constexpr int kChoose = 0xca;  // the operation a ? b : c
    return {{_mm512_ternarylogic_epi32(upper_bit, turned, first, kChoose)},
            {_mm512_ternarylogic_epi32(upper_bit, _mm512_ror_epi32(turned, 4), second, kChoose)}};
  }
}
template <uint32_t kBits>
inline Floats16 floats_of(Lanes16<kBits> codes) {
  return {_mm512_cvtepi32_ps(_mm512_and_si512(codes.v, _mm512_set1_epi32((1 << kBits) - 1)))};
}

#endif

template <uint32_t kBits>
inline UnitCodes unit_codes(const uint8_t* unit) {
  if constexpr (kBits == 8) {
    return {load_bytes(unit), load_bytes(unit + 16)};
  } else if constexpr (kBits == 4) {
    const Codes16 pairs = load_bytes(unit), mask = _mm_set1_epi8(15);
    return {_mm_and_si128(pairs, mask), _mm_and_si128(_mm_srli_epi16(pairs, 4), mask)};
  } else {
    const __m256i codes = joined_planes<kBits>(unit);
    return {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
  }
}

inline Floats16 floats_of(Codes16 codes) {
  return Floats16::from_u8(codes);
}

template <class SmallFloat>
inline __m256i halves_of(Codes16 codes) {
  if constexpr (SmallFloat::kBits == 8) {  // a sign that is extended reaches its place with the rest
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), SmallFloat::kShift);
    return _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<short>(SmallFloat::kHalfMask | 0x8000)));
  }
  const __m256i wide = _mm256_cvtepu8_epi16(codes);
  const __m256i magnitude = _mm256_and_si256(_mm256_slli_epi16(wide, SmallFloat::kShift),
                                             _mm256_set1_epi16(static_cast<short>(SmallFloat::kHalfMask)));
  const __m256i sign =
      _mm256_and_si256(_mm256_slli_epi16(wide, SmallFloat::kSignShift), _mm256_set1_epi16(static_cast<short>(0x8000)));
  return _mm256_or_si256(magnitude, sign);
}

#if defined(__AVX512F__)

// It has the values / kUnit of the first 32 codes: of all that have 5 bits, or of those of 6 bits without a sign.
template <class SmallFloat>
struct SmallFloatTable {
  alignas(64) float value[32];
  constexpr SmallFloatTable() : value{} {
    for (uint32_t code = 0; code < 32; ++code) value[code] = SmallFloat::value(code) / SmallFloat::kUnit;
  }
};

// This has SmallFloat's values / kUnit.
template <class SmallFloat>
inline Floats16 small_floats(Codes16 codes) {
  if constexpr (SmallFloat::kBits == 5 || SmallFloat::kBits == 6) {
    static constexpr SmallFloatTable<SmallFloat> kTable;
    const __m512i index = _mm512_cvtepu8_epi32(codes);  // the look-up takes the lowest five bits of each
    const __m512 values =
        _mm512_permutex2var_ps(_mm512_load_ps(kTable.value), index, _mm512_load_ps(kTable.value + 16));
    if constexpr (SmallFloat::kBits == 5) return {values};
    constexpr int kValuesXorSign = 0x78;  // a ^ (b & c)
    const __m512i sign = _mm512_set1_epi32(std::numeric_limits<int32_t>::min());
    return {_mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(_mm512_castps_si512(values), _mm512_slli_epi32(index, 26), sign, kValuesXorSign))};
  } else {
    return {_mm512_cvtph_ps(halves_of<SmallFloat>(codes))};
  }
}

#if defined(__AVX512VBMI__)

// Sixteen numbers in bf16 are the lower or the upper halves of sixteen lanes; other numbers are in the other halves.
struct LowerBf16 {
  __m512i v;
};
struct UpperBf16 {
  __m512i v;
};
template <class SmallFloat>
inline Floats16 small_floats(LowerBf16 codes) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(codes.v, 16))};
}
template <class SmallFloat>
inline Floats16 small_floats(UpperBf16 codes) {
  return {_mm512_castsi512_ps(_mm512_and_si512(codes.v, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000U))))};
}

// These are the weights of two units of codes of 8 bits, sixteen by sixteen: the values / kUnit, for small_floats().
struct TwoUnits {
  LowerBf16 first;
  UpperBf16 second;
  LowerBf16 third;
  UpperBf16 fourth;
};

// It has the two bytes of the values / kUnit in bf16 of all codes without a sign, and the order in which two_units()
// looks codes up. Unpacking joins low bytes with high ones: of 16 bytes the first 8 become the words of one vector, the
// others those of another. So byte 16 q + 2 i of the order has code 4 q + i, which becomes the lower half of lane 4 q +
// i of the first vector; the bytes after it, 8 later and 9 later have the codes that are 16, 32 and 48 further on.
template <class SmallFloat>
struct Bf16Bytes {
  alignas(64) uint8_t low[128], high[128], order[64];
  constexpr Bf16Bytes() : low{}, high{}, order{} {
    for (uint32_t code = 0; code < 128; ++code) {
      const auto bits = __builtin_bit_cast(uint32_t, SmallFloat::value(code) / SmallFloat::kUnit);
      low[code] = static_cast<uint8_t>(bits >> 16);
      high[code] = static_cast<uint8_t>(bits >> 24);
    }
    for (uint32_t lane = 0; lane < 16; ++lane) {
      for (uint32_t part = 0; part < 4; ++part) {
        order[lane / 4 * 16 + lane % 4 * 2 + part / 2 * 8 + part % 2] = static_cast<uint8_t>(16 * part + lane);
      }
    }
  }
};

template <class SmallFloat>
inline TwoUnits two_units(const uint8_t* unit) {
  static_assert(SmallFloat::kBits == 8);
  static constexpr Bf16Bytes<SmallFloat> kBytes;
  constexpr int kAOrBAndMask = 0xf8;
  const __m512i codes = _mm512_permutexvar_epi8(_mm512_load_si512(kBytes.order), _mm512_loadu_si512(unit));
  // The look-ups take the lowest seven bits of a code.
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(kBytes.low), codes, _mm512_load_si512(kBytes.low + 64));
  const __m512i magnitude =
      _mm512_permutex2var_epi8(_mm512_load_si512(kBytes.high), codes, _mm512_load_si512(kBytes.high + 64));
  const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), kAOrBAndMask);
  const __m512i even = _mm512_unpacklo_epi8(low, high), odd = _mm512_unpackhi_epi8(low, high);
  return {{even}, {even}, {odd}, {odd}};
}

#endif

// This has the sixteen values of codes of 4 bits, times a scale.
class Codebook {
 public:
  Codebook(const float (&book)[16], float scale) : table_(mul(Floats16::load(book), Floats16::all(scale)).v) {}
  Floats16 operator()(Lanes16<4> codes) const { return {_mm512_permutexvar_ps(codes.v, table_)}; }

 private:
  __m512 table_;
};

#else

template <class SmallFloat>
inline Floats16 small_floats(Codes16 codes) {
  const __m256i halves = halves_of<SmallFloat>(codes);
  return {{_mm256_cvtph_ps(_mm256_castsi256_si128(halves))}, {_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))}};
}

class Codebook {
 public:
  Codebook(const float (&book)[16], float scale) : table_(mul(Floats16::load(book), Floats16::all(scale))) {}
  Floats16 operator()(Codes16 codes) const { return {look_up(codes), look_up(_mm_srli_si128(codes, 8))}; }

 private:
  // The fourth bit of a code chooses the table's half.
  Floats<8> look_up(Codes16 codes) const {
    const __m256i index = _mm256_cvtepu8_epi32(codes);
    const __m256 low = _mm256_permutevar8x32_ps(table_.low.v, index);
    const __m256 high = _mm256_permutevar8x32_ps(table_.high.v, index);
    return {_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)))};
  }

  Floats16 table_;
};

#endif

#else

struct Codes16 {
  uint8_t code[16];
};
struct UnitCodes {
  Codes16 first, second;
};
template <uint32_t kBits>
inline UnitCodes unit_codes(const uint8_t* unit) {
  UnitCodes codes;
  for (uint32_t i = 0; i < 16; ++i) {
    codes.first.code[i] = static_cast<uint8_t>(code_in_unit(kBits, unit, i));
    codes.second.code[i] = static_cast<uint8_t>(code_in_unit(kBits, unit, 16 + i));
  }
  return codes;
}
inline Floats16 floats_of(Codes16 codes) {
  return Floats16::decode<TENON_U8>(codes.code);
}
template <class SmallFloat>
inline Floats16 small_floats(Codes16 codes) {
  Floats16 w;
  for (uint32_t i = 0; i < 16; ++i) w.v[i] = SmallFloat::value(codes.code[i]) / SmallFloat::kUnit;
  return w;
}
class Codebook {
 public:
  Codebook(const float (&book)[16], float scale) : table_(mul(Floats16::load(book), Floats16::all(scale))) {}
  Floats16 operator()(Codes16 codes) const {
    Floats16 w;
    for (uint32_t i = 0; i < 16; ++i) w.v[i] = table_.v[codes.code[i]];
    return w;
  }

 private:
  Floats16 table_;
};

#endif

// It makes the weights code * scale + offset of codes of kBits bits; the product is rounded with the sum alone.
template <uint32_t kBits>
class ScaledCodes {
 public:
  ScaledCodes(float scale, float offset) : scale_(Floats16::all(scale)), offset_(Floats16::all(offset)) {}
  Floats16 operator()(Codes16 codes) const { return fma(floats_of(codes), scale_, offset_); }

 private:
  Floats16 scale_, offset_;
};

#if defined(__AVX512F__)

template <uint32_t kBits>
  requires(kBits <= 4)
class ScaledCodes<kBits> {
 public:
  ScaledCodes(float scale, float offset)
      : table_(fma(floats_of(Lanes16<kBits>{_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}),
                   Floats16::all(scale), Floats16::all(offset))) {}
  Floats16 operator()(Codes16 codes) const { return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), table_.v)}; }
  Floats16 operator()(Lanes16<kBits> codes) const { return {_mm512_permutexvar_ps(codes.v, table_.v)}; }

 private:
  Floats16 table_;
};

#endif

// These are four numbers, one for each eight codes of a unit: scales that are stored in bf16, or the offsets that zero
// points make with them.
#if defined(__AVX2__)
struct OfEights {
  __m128 v;

  static OfEights scales(const uint8_t* bf16) {
    int64_t bits;
    memcpy(&bits, bf16, sizeof(bits));
    return {_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_cvtsi64_si128(bits)), 16))};
  }
  static OfEights offsets(const OfEights& scale, const uint8_t* zeros) {
    int32_t bits;
    memcpy(&bits, zeros, sizeof(bits));
    const __m128 zero = _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bits)));
    return {_mm_sub_ps(_mm_setzero_ps(), _mm_mul_ps(scale.v, zero))};
  }
  // Returns number kFrom eight times, and then the next one.
  template <int kFrom>
  Floats16 spread() const {
#if defined(__AVX512F__)
    constexpr int kNext = kFrom + 1;
    const __m512i places = _mm512_setr_epi32(kFrom, kFrom, kFrom, kFrom, kFrom, kFrom, kFrom, kFrom, kNext, kNext,
                                             kNext, kNext, kNext, kNext, kNext, kNext);
    return {_mm512_permutexvar_ps(places, _mm512_castps128_ps512(v))};
#else
    const __m256 four = _mm256_castps128_ps256(v);
    return {{_mm256_permutevar8x32_ps(four, _mm256_set1_epi32(kFrom))},
            {_mm256_permutevar8x32_ps(four, _mm256_set1_epi32(kFrom + 1))}};
#endif
  }
};
#else
struct OfEights {
  float v[4];

  static OfEights scales(const uint8_t* bf16) {
    OfEights scale;
    for (uint32_t i = 0; i < 4; ++i)
      scale.v[i] = bf16_to_float(static_cast<uint16_t>(bf16[2 * i] | bf16[2 * i + 1] << 8));
    return scale;
  }
  static OfEights offsets(const OfEights& scale, const uint8_t* zeros) {
    OfEights offset;
    for (uint32_t i = 0; i < 4; ++i) offset.v[i] = 0 - scale.v[i] * static_cast<float>(zeros[i]);
    return offset;
  }
  template <int kFrom>
  Floats16 spread() const {
    Floats16 lanes;
    for (uint32_t i = 0; i < 16; ++i) lanes.v[i] = v[kFrom + i / 8];
    return lanes;
  }
};
#endif

}  // namespace
}  // namespace tenon::sdk::cpu
