// Vectors of weights from units of packed codes (tenon/sdk/packed_codes.h): look-ups in a codebook, small floats, integers.
// For the one source of an instruction set, see vector.h; all sets give the same bits.
#pragma once

#include "tenon/sdk/cpu/vector.h"
#include "tenon/sdk/packed_codes.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::sdk::cpu {
namespace {

#if defined(__AVX2__)

// Sixteen codes, a byte each.
using Codes16 = __m128i;

// Bits of the codes 16 * kHalf to 16 * kHalf + 15 of a plane.
template <uint32_t kPlane, uint32_t kHalf>
inline Codes16 plane_codes(const uint8_t* plane) {
  constexpr int kFirst = 4 * kHalf;
  const Codes16 mask = _mm_set1_epi8((1 << kPlane) - 1);
  if constexpr (kPlane == 4) {
    return _mm_and_si128(_mm_srli_epi16(load_bytes(plane), kFirst), mask);
  } else if constexpr (kPlane == 2) {
    int64_t word;
    memcpy(&word, plane, sizeof(word));
    return _mm_and_si128(_mm_srlv_epi64(_mm_set1_epi64x(word), _mm_set_epi64x(kFirst + 2, kFirst)), mask);
  } else {
    int32_t word;
    memcpy(&word, plane, sizeof(word));
    const __m128i shifts = _mm_setr_epi32(kFirst, kFirst + 1, kFirst + 2, kFirst + 3);
    return _mm_and_si128(_mm_srlv_epi32(_mm_set1_epi32(word), shifts), mask);
  }
}
// The codes 16 * kHalf to 16 * kHalf + 15 of a unit.
template <uint32_t kBits, uint32_t kHalf>
inline Codes16 unit_codes(const uint8_t* unit) {
  if constexpr (kBits == 8) {
    return load_bytes(unit + 16 * kHalf);
  } else if constexpr (kBits == 4 || kBits == 2 || kBits == 1) {
    return plane_codes<kBits, kHalf>(unit);
  } else {
    constexpr uint32_t kPlane = kBits > 4 ? 4 : 2;
    const Codes16 upper = unit_codes<kBits - kPlane, kHalf>(unit + 4 * kPlane);
    return _mm_or_si128(plane_codes<kPlane, kHalf>(unit), _mm_slli_epi16(upper, kPlane));
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

// SmallFloat's values / kUnit.
template <class SmallFloat>
inline Floats16 small_floats(Codes16 codes) {
  return {_mm512_cvtph_ps(halves_of<SmallFloat>(codes))};
}

// The sixteen values of codes of 4 bits, times a scale.
class Codebook {
 public:
  Codebook(const float (&book)[16], float scale) : table_(mul(Floats16::load(book), Floats16::all(scale)).v) {}
  Floats16 operator()(Codes16 codes) const { return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), table_)}; }

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
template <uint32_t kBits, uint32_t kHalf>
inline Codes16 unit_codes(const uint8_t* unit) {
  Codes16 codes;
  for (uint32_t i = 0; i < 16; ++i) codes.code[i] = static_cast<uint8_t>(code_in_unit(kBits, unit, 16 * kHalf + i));
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

}  // namespace
}  // namespace tenon::sdk::cpu
