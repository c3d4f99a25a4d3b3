// This has the vocabulary of dot products of i8 with i8, for rows that lie as they are: under AVX-512 VNNI, AVX-VNNI,
// AVX2 or in plain code. vector.h has the products of codes that are packed sixteen rows side by side.
//
//   Bytes        kCount i8 of a row: a register
//   ByteWeights  the same, made ready to be multiplied
//   ByteSum      lanes of i32, to which products are added
//
// A sum is an exact integer, the same under every instruction set, but that products with weights come out larger by
// kOffset times the sum of all x that they met, which the kernel subtracts.
//
// VNNI multiplies bytes without a sign by bytes with one, so weights come with 128 added, and 128 times the sum of x is
// subtracted in the end; sums may wrap around on the way and come back. AVX2 multiplies |w| by x with w's sign: pairs
// of products stay below 2 * 128 * 127, which 16 bits hold.
#pragma once

#include "tenon/sdk/cpu/vector.h"

namespace tenon::sdk::cpu {
namespace {

// Bytes::load_first(p, n) reads the first n bytes and makes the others zeros under AVX-512 VNNI. Elsewhere it reads
// all kCount: rows are whole registers there.
#if defined(__AVX512VNNI__)

struct Bytes {
  static constexpr uint32_t kCount = 64;
  __m512i v;
  static Bytes load(const void* p) { return {_mm512_loadu_si512(p)}; }
  static Bytes load_first(const void* p, uint32_t n) { return {_mm512_maskz_loadu_epi8((uint64_t{1} << n) - 1, p)}; }
};
struct ByteWeights {
  static constexpr int32_t kOffset = 128;
  __m512i v;
  explicit ByteWeights(Bytes w) : v(_mm512_xor_si512(w.v, _mm512_set1_epi8(static_cast<char>(0x80)))) {}
};
struct ByteSum {
  __m512i v = _mm512_setzero_si512();
  void add(const ByteWeights& w, Bytes x) { v = _mm512_dpbusd_epi32(v, w.v, x.v); }
  int32_t total() const { return _mm512_reduce_add_epi32(v); }
};
// Returns the totals of four sums, in one lane each.
inline __m128i totals(const ByteSum (&s)[4]) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0].v, s[1].v), _mm512_unpackhi_epi32(s[0].v, s[1].v));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2].v, s[3].v), _mm512_unpackhi_epi32(s[2].v, s[3].v));
  const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

#elif defined(__AVX2__)

struct Bytes {
  static constexpr uint32_t kCount = 32;
  __m256i v;
  static Bytes load(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
  static Bytes load_first(const void* p, uint32_t) { return load(p); }
};
struct ByteWeights {
#if defined(__AVXVNNI__)
  static constexpr int32_t kOffset = 128;
  __m256i v;
  explicit ByteWeights(Bytes w) : v(_mm256_xor_si256(w.v, _mm256_set1_epi8(static_cast<char>(0x80)))) {}
#else
  static constexpr int32_t kOffset = 0;
  __m256i v, magnitude;
  explicit ByteWeights(Bytes w) : v(w.v), magnitude(_mm256_abs_epi8(w.v)) {}
#endif
};
struct ByteSum {
  __m256i v = _mm256_setzero_si256();
  void add(const ByteWeights& w, Bytes x) {
#if defined(__AVXVNNI__)
    v = _mm256_dpbusd_avx_epi32(v, w.v, x.v);
#else
    const __m256i pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x.v, w.v));
    v = _mm256_add_epi32(v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
  }
  int32_t total() const {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  }
};
// Returns the totals of four sums, in one lane each.
inline __m128i totals(const ByteSum (&s)[4]) {
  const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(s[0].v, s[1].v), _mm256_unpackhi_epi32(s[0].v, s[1].v));
  const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(s[2].v, s[3].v), _mm256_unpackhi_epi32(s[2].v, s[3].v));
  const __m256i all = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

#else

struct Bytes {
  static constexpr uint32_t kCount = 32;
  int8_t v[kCount];
  static Bytes load(const void* p) {
    Bytes b;
    memcpy(b.v, p, sizeof(b.v));
    return b;
  }
  static Bytes load_first(const void* p, uint32_t) { return load(p); }
};
struct ByteWeights {
  static constexpr int32_t kOffset = 0;
  Bytes v;
  explicit ByteWeights(const Bytes& w) : v(w) {}
};
struct ByteSum {
  int32_t v = 0;
  void add(const ByteWeights& w, const Bytes& x) {
    for (uint32_t i = 0; i < Bytes::kCount; ++i) v += w.v.v[i] * x.v[i];
  }
  int32_t total() const { return v; }
};

#endif

// Stores y[c] = (total of sum[c] + more) * (x_scale * scale[c]). The integers may wrap around on the way.
template <uint32_t C>
inline void store_scaled(const ByteSum (&sum)[C], int32_t more, float x_scale, const float (&scale)[C], float* y) {
#if defined(__AVX2__)
  if constexpr (C == 4) {
    const __m128 integers = _mm_cvtepi32_ps(_mm_add_epi32(totals(sum), _mm_set1_epi32(more)));
    _mm_storeu_ps(y, _mm_mul_ps(integers, _mm_mul_ps(_mm_set1_ps(x_scale), _mm_loadu_ps(scale))));
    return;
  }
#endif
  for (uint32_t c = 0; c < C; ++c) {
    const auto integer = static_cast<int32_t>(static_cast<uint32_t>(sum[c].total()) + static_cast<uint32_t>(more));
    y[c] = static_cast<float>(integer) * (x_scale * scale[c]);
  }
}

}  // namespace
}  // namespace tenon::sdk::cpu
