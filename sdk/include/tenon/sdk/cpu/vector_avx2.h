// This is the vocabulary of vector.h under AVX2 with FMA and F16C: eight lanes are a register, sixteen are two. The
// eight are there under AVX-512, too, which folds its sixteen to them.
#pragma once

#include "tenon/sdk/cpu/vector_types.h"

#if defined(__AVX2__)

namespace tenon::sdk::cpu {
namespace {

inline __m128i load_bytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
inline __m128i load_eight_bytes(const void* p) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(p));
}
inline float half_scale(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, sizeof(bits));
  return _cvtsh_ss(bits);
}

template <>
struct Floats<8> {
  __m256 v;

  static Floats zeros() { return {_mm256_setzero_ps()}; }
  static Floats all(float x) { return {_mm256_set1_ps(x)}; }
  static Floats load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Floats load_first(const float* p, uint32_t n) { return decode_first<TENON_F32>(p, n); }
  // It takes the lower eight bytes.
  static Floats from_u8(__m128i bytes) { return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))}; }
  static Floats from_i8(__m128i bytes) { return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))}; }

  template <uint32_t Format>
  static Floats decode(const void* p) {
    if constexpr (Format == TENON_F32) {
      return load(static_cast<const float*>(p));
    } else if constexpr (Format == TENON_F16) {
      return {_mm256_cvtph_ps(load_bytes(p))};
    } else if constexpr (Format == TENON_BF16) {
      return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_bytes(p)), 16))};
    } else {
      return Format == TENON_U8 ? from_u8(load_eight_bytes(p)) : from_i8(load_eight_bytes(p));
    }
  }
  template <uint32_t Format>
  static Floats decode_first(const void* p, uint32_t n) {
    if (n >= 8) return decode<Format>(p);
    uint8_t part[8 * kElementBytes<Format>] = {};
    memcpy(part, p, size_t{n} * kElementBytes<Format>);
    return decode<Format>(part);
  }
};

inline void store(float* p, Floats<8> a) {
  _mm256_storeu_ps(p, a.v);
}
inline Floats<8> add(Floats<8> a, Floats<8> b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline Floats<8> sub(Floats<8> a, Floats<8> b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline Floats<8> mul(Floats<8> a, Floats<8> b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline Floats<8> div(Floats<8> a, Floats<8> b) {
  return {_mm256_div_ps(a.v, b.v)};
}
inline Floats<8> fma(Floats<8> a, Floats<8> b, Floats<8> c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline Floats<8> max(Floats<8> a, Floats<8> b) {
  return {_mm256_max_ps(a.v, b.v)};
}
inline Floats<8> negative(Floats<8> a) {
  return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0F))};
}
inline Floats<8> abs(Floats<8> a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0F), a.v)};
}
inline Floats<8> copysign(Floats<8> a, Floats<8> sign) {
  return {_mm256_or_ps(abs(a).v, _mm256_and_ps(_mm256_set1_ps(-0.0F), sign.v))};
}
inline Floats<8> round(Floats<8> a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Floats<8> power_of_two(Floats<8> a) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(a.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))};
}
inline Floats<8> zero_below(Floats<8> a, Floats<8> limit, Floats<8> otherwise) {
  return {_mm256_and_ps(_mm256_cmp_ps(a.v, limit.v, _CMP_NLT_UQ), otherwise.v)};
}
// Adds halves to halves: eight lanes become four, four become one.
inline __m128 folded(Floats<8> a) {
  return _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
}
inline float sum(Floats<8> a) {
  const __m128 four = folded(a), two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Floats<8> a) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Lane c of row r becomes lane r of row c.
[[gnu::always_inline]] inline void transpose(Floats<8> (&row)[8]) {
  __m256 pairs[8], fours[8];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(row[i].v, row[i + 1].v);
    pairs[i + 1] = _mm256_unpackhi_ps(row[i].v, row[i + 1].v);
  }
  // The half h of fours[4 i + j] has rows 4 i to 4 i + 3 of column 4 h + j.
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 8; i += 4) {
    for (uint32_t j = 0; j < 2; ++j) {
      const __m256d a = _mm256_castps_pd(pairs[i + j]), b = _mm256_castps_pd(pairs[i + j + 2]);
      fours[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
      fours[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    }
  }
#pragma GCC unroll 8
  for (uint32_t j = 0; j < 4; ++j) {
    row[j].v = _mm256_permute2f128_ps(fours[j], fours[4 + j], 0x20);
    row[4 + j].v = _mm256_permute2f128_ps(fours[j], fours[4 + j], 0x31);
  }
}

template <>
struct Doubles<4> {
  __m256d v;

  static Doubles zeros() { return {_mm256_setzero_pd()}; }
  static Doubles all(double x) { return {_mm256_set1_pd(x)}; }
  static Doubles load(const double* p) { return {_mm256_loadu_pd(p)}; }
};
inline void store(double* p, Doubles<4> a) {
  _mm256_storeu_pd(p, a.v);
}
inline Doubles<4> add(Doubles<4> a, Doubles<4> b) {
  return {_mm256_add_pd(a.v, b.v)};
}
inline Doubles<4> multiply_add(Doubles<4> a, Doubles<4> b, Doubles<4> c) {
  return {_mm256_fmadd_pd(a.v, b.v, c.v)};
}

#if !defined(__AVX512F__)

template <>
struct Floats<16> {
  Floats<8> low, high;

  static Floats zeros() { return {Floats<8>::zeros(), Floats<8>::zeros()}; }
  static Floats all(float x) { return {Floats<8>::all(x), Floats<8>::all(x)}; }
  static Floats load(const float* p) { return {Floats<8>::load(p), Floats<8>::load(p + 8)}; }
  static Floats load_first(const float* p, uint32_t n) { return decode_first<TENON_F32>(p, n); }
  static Floats from_u8(__m128i bytes) { return {Floats<8>::from_u8(bytes), Floats<8>::from_u8(upper(bytes))}; }
  static Floats from_i8(__m128i bytes) { return {Floats<8>::from_i8(bytes), Floats<8>::from_i8(upper(bytes))}; }

  template <uint32_t Format>
  static Floats decode(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return {Floats<8>::decode<Format>(bytes), Floats<8>::decode<Format>(bytes + 8 * kElementBytes<Format>)};
  }
  // It is out of line, so that inner loops that end with it keep their registers.
  template <uint32_t Format>
  [[gnu::noinline]] static Floats decode_first(const void* p, uint32_t n) {
    uint8_t part[16 * kElementBytes<Format>] = {};
    memcpy(part, p, size_t{n} * kElementBytes<Format>);
    return decode<Format>(part);
  }

 private:
  static __m128i upper(__m128i bytes) { return _mm_srli_si128(bytes, 8); }
};
inline void store(float* p, Floats<16> a) {
  store(p, a.low);
  store(p + 8, a.high);
}
inline Floats<16> mul(Floats<16> a, Floats<16> b) {
  return {mul(a.low, b.low), mul(a.high, b.high)};
}
inline Floats<16> fma(Floats<16> a, Floats<16> b, Floats<16> c) {
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
inline Floats<8> folded(Floats<16> a) {
  return add(a.low, a.high);
}

// Returns the weights (nibble - First) * scale + shift of the low or high nibbles of sixteen bytes. Products of scale
// and nibble must be exact, so that it makes no difference whether they are fused with the shift.
template <int First = 0>
class Nibbles {
 public:
  Nibbles(float scale, float shift) : scale_(Floats<16>::all(scale)), shift_(Floats<16>::all(shift)) {}
  Floats<16> low(const uint8_t* p) const { return value(load_bytes(p)); }
  Floats<16> high(const uint8_t* p) const { return value(_mm_srli_epi16(load_bytes(p), 4)); }

 private:
  Floats<16> value(__m128i b) const {
    const __m128i nibble = _mm_and_si128(b, _mm_set1_epi8(15));
    return fma(Floats<16>::from_i8(_mm_sub_epi8(nibble, _mm_set1_epi8(First))), scale_, shift_);
  }

  Floats<16> scale_, shift_;
};

#endif

template <>
struct Ints<8> {
  __m256i v;

#if defined(__AVXVNNI__)
  static constexpr int kSignedOffset = 0;
#else
  // Pairs of products of 8-bit codes do not fit 16 bits unless the codes have signs. Codes that have more than their
  // numbers by this much get signs in dot(), and so need no correction.
  static constexpr int kSignedOffset = 128;
#endif

  static Ints load_i8(const uint8_t* p) { return {_mm256_cvtepi8_epi32(load_eight_bytes(p))}; }
  template <int Offset>
  static Ints begin(int32_t negative_sum) {
    if constexpr (Offset == 0 || Offset == kSignedOffset) {
      return {_mm256_setzero_si256()};
    } else {
      return {_mm256_slli_epi32(_mm256_set1_epi32(negative_sum), __builtin_ctz(Offset))};
    }
  }
};
inline Ints<8> mul(Ints<8> a, Ints<8> b) {
  return {_mm256_mullo_epi32(a.v, b.v)};
}
inline Ints<8> add(Ints<8> a, Ints<8> b) {
  return {_mm256_add_epi32(a.v, b.v)};
}
template <uint32_t Shift>
inline Ints<8> raised(Ints<8> a) {
  return {_mm256_slli_epi32(a.v, Shift)};
}
inline Floats<8> to_floats(Ints<8> a) {
  return {_mm256_cvtepi32_ps(a.v)};
}

template <>
struct Codes<8> {
  __m256i v;

  static Codes load(const uint8_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
};
template <uint32_t Shift>
inline Codes<8> shifted(Codes<8> c) {
  return {_mm256_srli_epi16(c.v, Shift)};
}
template <uint32_t Shift>
inline Codes<8> shifted(Codes<8> c, int mask) {
  return {_mm256_and_si256(shifted<Shift>(c).v, _mm256_set1_epi8(static_cast<char>(mask)))};
}
template <uint32_t Shift>
inline Codes<8> raised(Codes<8> c) {
  return {_mm256_slli_epi16(c.v, Shift)};
}
inline Codes<8> joined(Codes<8> a, Codes<8> b, int mask) {
  return {_mm256_or_si256(a.v, _mm256_and_si256(b.v, _mm256_set1_epi8(static_cast<char>(mask))))};
}
// Returns the table's byte for each code, which is below 16.
inline Codes<8> looked_up(const uint8_t (&table)[16], Codes<8> c) {
  return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_bytes(table)), c.v)};
}
// Returns the table's lane for the three bits from kBit on of each lane.
template <uint32_t kBit>
inline Codes<8> looked_up_lanes(const uint32_t (&table)[8], Codes<8> c) {
  return {_mm256_permutevar8x32_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(table)),
                                      _mm256_srli_epi32(c.v, kBit))};
}
template <int Offset>
inline Ints<8> dot(Ints<8> sum, Codes<8> c, int32_t four_x) {
  const __m256i x = _mm256_set1_epi32(four_x);
#if defined(__AVXVNNI__)
  return {_mm256_dpbusd_avx_epi32(sum.v, c.v, x)};
#else
  __m256i pairs;
  if constexpr (Offset == Ints<8>::kSignedOffset) {
    const __m256i code = _mm256_xor_si256(c.v, _mm256_set1_epi8(static_cast<char>(0x80)));
    pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(x, code));
  } else {
    pairs = _mm256_maddubs_epi16(c.v, x);
  }
  return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
#endif
}

template <>
struct Words<8> {
  __m256i v;

  static Words repeated(const int16_t* p) {
    int64_t four;
    memcpy(&four, p, sizeof(four));
    return {_mm256_set1_epi64x(four)};
  }
};
// Returns the number in bits [kBit, kBit + 4) of each word, which is in two's complement.
template <uint32_t kBit>
inline Words<8> signed_fours(Codes<8> c) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(c.v, 12 - kBit), 12)};
}
inline Words<8> bytes_at(Words<8> w, Codes<8> places) {
  return {_mm256_shuffle_epi8(w.v, places.v)};
}
inline Ints<8> dot(Ints<8> sum, Words<8> w, Words<8> x) {
#if defined(__AVXVNNI__)
  return {_mm256_dpwssd_avx_epi32(sum.v, w.v, x.v)};
#else
  return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(w.v, x.v))};
#endif
}
inline Ints<8> dot(Ints<8> sum, Words<8> w, int32_t two_x) {
  return dot(sum, w, Words<8>{_mm256_set1_epi32(two_x)});
}

}  // namespace
}  // namespace tenon::sdk::cpu

#endif
