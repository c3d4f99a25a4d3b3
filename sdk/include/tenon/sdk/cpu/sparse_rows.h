// This makes vectors of weights of which each quad keeps two of four, from their integers of four bits. It is for the
// one source of an instruction set, see vector.h; all sets give the same bits.
//
// SparseQuads(scale) makes 32 weights: operator()(quads, columns, first, sink) calls sink(first, Floats16) and
// sink(first + 1, Floats16).
//   quads    8 bytes: a quad's two integers in two's complement, the first in the lower half
//   columns  4 bytes: four bits a quad, the column of its first integer and, two bits higher, that of its second
// A weight is scale * (code - 8), with code = integer + 8, and where there is none its code is 8.
#pragma once

#include <array>

#include "tenon/sdk/cpu/coded_rows.h"

namespace tenon::sdk::cpu {
namespace {

#if defined(__AVX512F__)

class SparseQuads {
 public:
  explicit SparseQuads(float scale)
      : values_(fma(Floats16{_mm512_setr_ps(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)},
                    Floats16::all(scale), Floats16::all(-8 * scale))) {}
  template <class Sink>
  void operator()(const uint8_t* quads, const uint8_t* columns, uint32_t first, Sink&& sink) const {
    const __m256i integers = spread(quads, columns);
    sink(first, look_up(_mm256_castsi256_si128(integers)));
    sink(first + 1, look_up(_mm256_extracti128_si256(integers, 1)));
  }

 private:
  // kPlaces[bits] has a byte for each column of a quad whose columns are given by those four bits: which of its two
  // integers it has, or, at the highest bit, none.
  static constexpr std::array<uint32_t, 16> kPlaces = [] {
    std::array<uint32_t, 16> places{};
    for (uint32_t columns = 0; columns < 16; ++columns) {
      for (uint32_t column = 0; column < 4; ++column) {
        const uint32_t place = column == (columns & 3) ? 0 : column == columns >> 2 ? 1 : 0x80;
        places[columns] |= place << 8 * column;
      }
    }
    return places;
  }();

  // Returns the integers of a unit's 32 weights in the lower four bits of a byte each, 0 where there is none.
  static __m256i spread(const uint8_t* quads, const uint8_t* columns) {
    int64_t all_quads;
    int32_t all_columns;
    memcpy(&all_quads, quads, sizeof(all_quads));
    memcpy(&all_columns, columns, sizeof(all_columns));
    const __m128i firsts = _mm_cvtsi64_si128(all_quads);
    const __m256i pairs = _mm256_broadcastsi128_si256(
        _mm_unpacklo_epi8(firsts, _mm_srli_epi16(firsts, 4)));  // a quad's two integers, one after the other
    const __m256i of_quads =
        _mm256_srlv_epi32(_mm256_set1_epi32(all_columns), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    // The look-up takes the lowest four bits and ignores the rest.
    const __m256i places = _mm512_castsi512_si256(
        _mm512_permutexvar_epi32(_mm512_castsi256_si512(of_quads), _mm512_loadu_si512(kPlaces.data())));
    const __m256i first_of_quad =
        _mm256_setr_epi32(0, 0x02020202, 0x04040404, 0x06060606, 0x08080808, 0x0a0a0a0a, 0x0c0c0c0c, 0x0e0e0e0e);
    return _mm256_shuffle_epi8(pairs, _mm256_add_epi8(places, first_of_quad));
  }
  Floats16 look_up(__m128i integers) const {
    return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(integers), values_.v)};
  }

  Floats16 values_;  // the values of integers in two's complement
};

#else

#if defined(__AVX2__)
// Returns the codes of the weights 16 * kHalf to 16 * kHalf + 15 of a unit: a lane has a quad, and each of its two
// integers is shifted to its column's byte. Where there is none the code is 8.
template <uint32_t kHalf>
inline Codes16 sparse_codes(const uint8_t* quads, const uint8_t* columns) {
  int32_t bytes;
  uint16_t places;
  memcpy(&bytes, quads + 4 * kHalf, sizeof(bytes));
  memcpy(&places, columns + 2 * kHalf, sizeof(places));
  const __m128i integers = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
  const __m128i of_quad = _mm_srlv_epi32(_mm_set1_epi32(places), _mm_setr_epi32(0, 4, 8, 12));
  const __m128i bits = _mm_set1_epi32(0x18);  // they make a shift by whole bytes
  const __m128i first =
      _mm_sllv_epi32(_mm_and_si128(integers, _mm_set1_epi32(15)), _mm_and_si128(_mm_slli_epi32(of_quad, 3), bits));
  const __m128i second = _mm_sllv_epi32(_mm_srli_epi32(integers, 4), _mm_and_si128(_mm_slli_epi32(of_quad, 1), bits));
  return _mm_xor_si128(_mm_or_si128(first, second), _mm_set1_epi8(8));
}
#else
template <uint32_t kHalf>
inline Codes16 sparse_codes(const uint8_t* quads, const uint8_t* columns) {
  Codes16 codes;
  memset(codes.code, 8, sizeof(codes.code));
  for (uint32_t u = 0; u < 4; ++u) {
    const uint32_t integers = quads[4 * kHalf + u];
    const uint32_t of_quad = static_cast<uint32_t>(columns[2 * kHalf + u / 2]) >> (u % 2 * 4);
    codes.code[4 * u + (of_quad & 3)] = (integers & 15) ^ 8;
    codes.code[4 * u + (of_quad >> 2 & 3)] = static_cast<uint8_t>(integers >> 4 ^ 8);
  }
  return codes;
}
#endif

class SparseQuads {
 public:
  explicit SparseQuads(float scale) : scale_(Floats16::all(scale)), offset_(Floats16::all(-8 * scale)) {}
  template <class Sink>
  void operator()(const uint8_t* quads, const uint8_t* columns, uint32_t first, Sink&& sink) const {
    sink(first, fma(floats_of(sparse_codes<0>(quads, columns)), scale_, offset_));
    sink(first + 1, fma(floats_of(sparse_codes<1>(quads, columns)), scale_, offset_));
  }

 private:
  Floats16 scale_, offset_;
};

#endif

}  // namespace
}  // namespace tenon::sdk::cpu
