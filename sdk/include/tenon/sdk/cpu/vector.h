// Sixteen f32 lanes under AVX-512, AVX2 or in plain code, chosen by what the source is compiled for. Everything is in
// an anonymous namespace, so that no other source of the plugin picks up code of another instruction set: include this,
// and what builds on it, only in the one source of each set.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace tenon::sdk::cpu {
namespace {

#if defined(__AVX2__)
inline __m128i load_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
#endif

#if defined(__AVX512F__)

struct Vec {
  __m512 v;
};
inline Vec zeros() {
  return {_mm512_setzero_ps()};
}
inline Vec splat(float f) {
  return {_mm512_set1_ps(f)};
}
inline Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline void store(float* p, Vec a) {
  _mm512_storeu_ps(p, a.v);
}
inline Vec mul(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Vec convert_u8(__m128i b) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(b))};
}
inline Vec convert_i8(__m128i b) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b))};
}
inline Vec from_half(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
inline Vec from_bf16(const void* p) {
  const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline __m256 fold(Vec a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}

// (nibble - First) * scale + shift of 16 bytes' low or high nibbles; products of scale and nibble must be exact, so
// that fusing makes no difference.
template <int First = 0>
struct Nibbles {
  __m512 table;
  Nibbles(float scale, float shift)
      : table(_mm512_fmadd_ps(_mm512_setr_ps(-First, 1 - First, 2 - First, 3 - First, 4 - First, 5 - First, 6 - First,
                                             7 - First, 8 - First, 9 - First, 10 - First, 11 - First, 12 - First,
                                             13 - First, 14 - First, 15 - First),
                              _mm512_set1_ps(scale), _mm512_set1_ps(shift))) {}
  // The look-up takes the lowest four bits and ignores the rest.
  Vec look_up(__m128i b) const { return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(b), table)}; }
  Vec low(const uint8_t* p) const { return look_up(load_bytes(p)); }
  Vec high(const uint8_t* p) const { return look_up(_mm_srli_epi16(load_bytes(p), 4)); }
};

#elif defined(__AVX2__)

struct Vec {
  __m256 a, b;
};
inline Vec zeros() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline Vec splat(float f) {
  return {_mm256_set1_ps(f), _mm256_set1_ps(f)};
}
inline Vec load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, Vec v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
inline Vec mul(Vec x, Vec y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline Vec fma(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Vec convert_u8(__m128i b) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)))};
}
inline Vec convert_i8(__m128i b) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)))};
}
inline Vec from_half(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
inline __m256 widen_bf16(const __m128i* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
inline Vec from_bf16(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {widen_bf16(q), widen_bf16(q + 1)};
}
inline __m256 fold(Vec v) {
  return _mm256_add_ps(v.a, v.b);
}

template <int First = 0>
struct Nibbles {
  Vec scale, shift;
  Nibbles(float d, float m) : scale(splat(d)), shift(splat(m)) {}
  Vec value(__m128i b) const {
    const __m128i nibble = _mm_and_si128(b, _mm_set1_epi8(15));
    return fma(convert_i8(_mm_sub_epi8(nibble, _mm_set1_epi8(First))), scale, shift);
  }
  Vec low(const uint8_t* p) const { return value(load_bytes(p)); }
  Vec high(const uint8_t* p) const { return value(_mm_srli_epi16(load_bytes(p), 4)); }
};

#else

struct Vec {
  float v[16];
};
inline Vec zeros() {
  return {};
}
inline Vec load(const float* p) {
  Vec a;
  memcpy(a.v, p, sizeof(a.v));
  return a;
}
inline void store(float* p, Vec a) {
  memcpy(p, a.v, sizeof(a.v));
}
inline Vec fma(Vec a, Vec b, Vec c) {
  for (int i = 0; i < 16; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline float sum(Vec a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
inline Vec from_i8(const uint8_t* p) {
  Vec a;
  for (int i = 0; i < 16; ++i) a.v[i] = static_cast<float>(static_cast<int8_t>(p[i]));
  return a;
}
template <int First = 0>
struct Nibbles {
  float scale, shift;
  Nibbles(float d, float m) : scale(d), shift(m) {}
  Vec value(const uint8_t* p, int bits) const {
    Vec a;
    for (int i = 0; i < 16; ++i) a.v[i] = static_cast<float>(((p[i] >> bits) & 15) - First) * scale + shift;
    return a;
  }
  Vec low(const uint8_t* p) const { return value(p, 0); }
  Vec high(const uint8_t* p) const { return value(p, 4); }
};
// s[i] = sum of a[i]
inline void sum4(const Vec* a, float* s) {
  for (int i = 0; i < 4; ++i) s[i] = sum(a[i]);
}

#endif

#if defined(__AVX2__)
inline __m128 fold4(Vec a) {
  const __m256 s = fold(a);
  return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
inline float sum(Vec a) {
  const __m128 s = fold4(a), two = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline Vec from_i8(const uint8_t* p) {
  return convert_i8(load_bytes(p));
}
inline void sum4(const Vec* a, float* s) {
  __m128 r0 = fold4(a[0]), r1 = fold4(a[1]), r2 = fold4(a[2]), r3 = fold4(a[3]);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(s, _mm_add_ps(_mm_add_ps(r0, r2), _mm_add_ps(r1, r3)));
}
inline float half_scale(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, sizeof(bits));
  return _cvtsh_ss(bits);
}
#endif

// A hint; any address will do.
inline void prefetch(const uint8_t* p) {
  __builtin_prefetch(p);
}

// The first n < 16 floats, zeros behind; reads no further.
inline Vec load_some(const float* p, uint32_t n) {
  float values[16] = {};
  for (uint32_t i = 0; i < n; ++i) values[i] = p[i];
  return load(values);
}

}  // namespace
}  // namespace tenon::sdk::cpu
