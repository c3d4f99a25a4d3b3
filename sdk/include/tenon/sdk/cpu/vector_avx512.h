// This is the vocabulary of vector.h under AVX-512 (F, BW, DQ, VL): sixteen lanes are a register.
#pragma once

#include "tenon/sdk/cpu/vector_avx2.h"

#if defined(__AVX512F__)

namespace tenon::sdk::cpu {
namespace {

template <>
struct Floats<16> {
  __m512 v;

  static Floats zeros() { return {_mm512_setzero_ps()}; }
  static Floats all(float x) { return {_mm512_set1_ps(x)}; }
  static Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Floats load_first(const float* p, uint32_t n) { return decode_first<TENON_F32>(p, n); }
  static Floats from_u8(__m128i bytes) { return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))}; }
  static Floats from_i8(__m128i bytes) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))}; }

  template <uint32_t Format>
  static Floats decode(const void* p) {
    if constexpr (Format == TENON_F32) {
      return {_mm512_loadu_ps(p)};
    } else if constexpr (kElementBytes<Format> == 2) {
      return from_16_bits<Format>(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    } else {
      return from_bytes<Format>(load_bytes(p));
    }
  }
  template <uint32_t Format>
  static Floats decode_first(const void* p, uint32_t n) {
    const auto lanes = static_cast<__mmask16>((1u << n) - 1);
    if constexpr (Format == TENON_F32) {
      return {_mm512_maskz_loadu_ps(lanes, p)};
    } else if constexpr (kElementBytes<Format> == 2) {
      return from_16_bits<Format>(_mm256_maskz_loadu_epi16(lanes, p));
    } else {
      return from_bytes<Format>(_mm_maskz_loadu_epi8(lanes, p));
    }
  }

 private:
  template <uint32_t Format>
  static Floats from_16_bits(__m256i bits) {
    if constexpr (Format == TENON_F16) {
      return {_mm512_cvtph_ps(bits)};
    } else {
      return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
    }
  }
  template <uint32_t Format>
  static Floats from_bytes(__m128i bytes) {
    return Format == TENON_U8 ? from_u8(bytes) : from_i8(bytes);
  }
};

inline void store(float* p, Floats<16> a) {
  _mm512_storeu_ps(p, a.v);
}
inline Floats<16> add(Floats<16> a, Floats<16> b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline Floats<16> sub(Floats<16> a, Floats<16> b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline Floats<16> mul(Floats<16> a, Floats<16> b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Floats<16> div(Floats<16> a, Floats<16> b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline Floats<16> fma(Floats<16> a, Floats<16> b, Floats<16> c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Floats<16> max(Floats<16> a, Floats<16> b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline Floats<16> negative(Floats<16> a) {
  return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0F))};
}
inline Floats<16> abs(Floats<16> a) {
  return {_mm512_abs_ps(a.v)};
}
inline Floats<16> copysign(Floats<16> a, Floats<16> sign) {
  const __m512 bit = _mm512_set1_ps(-0.0F);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, a.v), _mm512_and_ps(bit, sign.v))};
}
inline Floats<16> round(Floats<16> a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Floats<16> power_of_two(Floats<16> a) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(a.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}
inline Floats<16> zero_below(Floats<16> a, Floats<16> limit, Floats<16> otherwise) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, limit.v, _CMP_NLT_UQ), otherwise.v)};
}
inline Floats<8> folded(Floats<16> a) {
  return {_mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1))};
}
inline float largest(Floats<16> a) {
  return _mm512_reduce_max_ps(a.v);
}

template <>
struct Doubles<8> {
  __m512d v;

  static Doubles zeros() { return {_mm512_setzero_pd()}; }
  static Doubles all(double x) { return {_mm512_set1_pd(x)}; }
  static Doubles load(const double* p) { return {_mm512_loadu_pd(p)}; }
};
inline void store(double* p, Doubles<8> a) {
  _mm512_storeu_pd(p, a.v);
}
inline Doubles<8> add(Doubles<8> a, Doubles<8> b) {
  return {_mm512_add_pd(a.v, b.v)};
}
inline Doubles<8> multiply_add(Doubles<8> a, Doubles<8> b, Doubles<8> c) {
  return {_mm512_fmadd_pd(a.v, b.v, c.v)};
}

// Lane c of row r becomes lane r of row c.
[[gnu::always_inline]] inline void transpose(Floats<16> (&row)[16]) {
  __m512 pairs[16], fours[16];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(row[i].v, row[i + 1].v);
    pairs[i + 1] = _mm512_unpackhi_ps(row[i].v, row[i + 1].v);
  }
  // The quarter q of fours[4 i + j] has rows 4 i to 4 i + 3 of column 4 q + j.
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 16; i += 4) {
    for (uint32_t j = 0; j < 2; ++j) {
      const __m512d a = _mm512_castps_pd(pairs[i + j]), b = _mm512_castps_pd(pairs[i + j + 2]);
      fours[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      fours[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
#pragma GCC unroll 8
  for (uint32_t j = 0; j < 4; ++j) {
    const __m512 even_low = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0x88);
    const __m512 even_high = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0x88);
    const __m512 odd_low = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0xdd);
    const __m512 odd_high = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0xdd);
    row[j].v = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    row[4 + j].v = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    row[8 + j].v = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    row[12 + j].v = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}

// Returns the weights (nibble - First) * scale + shift of the low or high nibbles of sixteen bytes. Products of scale
// and nibble must be exact, so that it makes no difference whether they are fused with the shift.
template <int First = 0>
class Nibbles {
 public:
  Nibbles(float scale, float shift)
      : table_(_mm512_fmadd_ps(_mm512_setr_ps(-First, 1 - First, 2 - First, 3 - First, 4 - First, 5 - First, 6 - First,
                                              7 - First, 8 - First, 9 - First, 10 - First, 11 - First, 12 - First,
                                              13 - First, 14 - First, 15 - First),
                               _mm512_set1_ps(scale), _mm512_set1_ps(shift))) {}
  Floats<16> low(const uint8_t* p) const { return look_up(lanes(p)); }
  Floats<16> high(const uint8_t* p) const { return look_up(_mm512_srli_epi32(lanes(p), 4)); }

 private:
  // The look-up takes the lowest four bits and ignores the rest.
  Floats<16> look_up(__m512i b) const { return {_mm512_permutexvar_ps(b, table_)}; }
  static __m512i lanes(const uint8_t* p) { return _mm512_cvtepu8_epi32(load_bytes(p)); }

  __m512 table_;
};

#if defined(__AVX512VNNI__)

template <>
struct Ints<16> {
  __m512i v;

  static Ints load_i8(const uint8_t* p) { return {_mm512_cvtepi8_epi32(load_bytes(p))}; }
  template <int Offset>
  static Ints begin(int32_t negative_sum) {
    if constexpr (Offset == 0) {
      return {_mm512_setzero_si512()};
    } else {
      return {_mm512_slli_epi32(_mm512_set1_epi32(negative_sum), __builtin_ctz(Offset))};
    }
  }
};
inline Ints<16> mul(Ints<16> a, Ints<16> b) {
  return {_mm512_mullo_epi32(a.v, b.v)};
}
inline Ints<16> add(Ints<16> a, Ints<16> b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
template <uint32_t Shift>
inline Ints<16> raised(Ints<16> a) {
  return {_mm512_slli_epi32(a.v, Shift)};
}
inline Floats<16> to_floats(Ints<16> a) {
  return {_mm512_cvtepi32_ps(a.v)};
}

template <>
struct Codes<16> {
  __m512i v;

  static Codes load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
};
template <uint32_t Shift>
inline Codes<16> shifted(Codes<16> c) {
  return {_mm512_srli_epi16(c.v, Shift)};
}
template <uint32_t Shift>
inline Codes<16> shifted(Codes<16> c, int mask) {
  return {_mm512_and_si512(shifted<Shift>(c).v, _mm512_set1_epi8(static_cast<char>(mask)))};
}
template <uint32_t Shift>
inline Codes<16> raised(Codes<16> c) {
  return {_mm512_slli_epi16(c.v, Shift)};
}
inline Codes<16> joined(Codes<16> a, Codes<16> b, int mask) {
  constexpr int kAOrBAndMask = 0xf8;
  return {_mm512_ternarylogic_epi32(a.v, b.v, _mm512_set1_epi8(static_cast<char>(mask)), kAOrBAndMask)};
}
// Returns the table's byte for each code, which is below 16.
inline Codes<16> looked_up(const uint8_t (&table)[16], Codes<16> c) {
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_bytes(table)), c.v)};
}
// Returns the table's lane for the four bits from kBit on of each lane.
template <uint32_t kBit>
inline Codes<16> looked_up_lanes(const uint32_t (&table)[16], Codes<16> c) {
  return {_mm512_permutexvar_epi32(_mm512_srli_epi32(c.v, kBit), _mm512_loadu_si512(table))};
}
template <int Offset>
inline Ints<16> dot(Ints<16> sum, Codes<16> c, int32_t four_x) {
  return {_mm512_dpbusd_epi32(sum.v, c.v, _mm512_set1_epi32(four_x))};
}

template <>
struct Words<16> {
  __m512i v;

  static Words load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  static Words repeated(const int16_t* p) {
    int64_t four;
    memcpy(&four, p, sizeof(four));
    return {_mm512_set1_epi64(four)};
  }
};
template <uint32_t Shift>
inline Words<16> shifted(Words<16> w) {
  return {_mm512_srli_epi16(w.v, Shift)};
}
inline Words<16> joined(Words<16> a, Words<16> b, int mask) {
  constexpr int kAOrBAndMask = 0xf8;
  return {_mm512_ternarylogic_epi32(a.v, b.v, _mm512_set1_epi16(static_cast<short>(mask)), kAOrBAndMask)};
}
// Returns the number in bits [kBit, kBit + 4) of each word, which is in two's complement.
template <uint32_t kBit>
inline Words<16> signed_fours(Codes<16> c) {
  return {_mm512_srai_epi16(_mm512_slli_epi16(c.v, 12 - kBit), 12)};
}
// Returns the table's number for each word's lowest 5 or 6 bits; other bits may be above them.
inline Words<16> looked_up(const int16_t (&table)[32], Words<16> w) {
  return {_mm512_permutexvar_epi16(w.v, _mm512_loadu_si512(table))};
}
inline Words<16> looked_up(const int16_t (&table)[64], Words<16> w) {
  return {_mm512_permutex2var_epi16(_mm512_loadu_si512(table), w.v, _mm512_loadu_si512(table + 32))};
}
inline Words<16> bytes_at(Words<16> w, Codes<16> places) {
  return {_mm512_shuffle_epi8(w.v, places.v)};
}
inline Ints<16> dot(Ints<16> sum, Words<16> w, Words<16> x) {
  return {_mm512_dpwssd_epi32(sum.v, w.v, x.v)};
}
inline Ints<16> dot(Ints<16> sum, Words<16> w, int32_t two_x) {
  return {_mm512_dpwssd_epi32(sum.v, w.v, _mm512_set1_epi32(two_x))};
}

#endif

#if defined(__AVX512BF16__)

// A lane has two numbers of bf16, as integers: without optimization clang 16 returns vectors of bf16 wrongly.
struct Bf16Pairs {
  static constexpr uint32_t kCount = 32;
  __m512i v;

  static Bf16Pairs load(const void* p) { return {_mm512_loadu_si512(p)}; }
  // Reads the first n, which are not all, and makes the others zero.
  static Bf16Pairs load_first(const void* p, uint32_t n) { return {_mm512_maskz_loadu_epi16((1u << n) - 1, p)}; }
};
// Adds the products of both numbers of each lane to the lane.
inline Floats<16> dot(Floats<16> sum, Bf16Pairs a, Bf16Pairs b) {
  return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}
inline void store_bf16(uint16_t* p, Floats<16> a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a.v)));
}

#endif

}  // namespace
}  // namespace tenon::sdk::cpu

#endif
