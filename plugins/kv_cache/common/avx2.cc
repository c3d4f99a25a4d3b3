#include <immintrin.h>
#include <string.h>

#include "convert.h"
#include "tenon/abi/types.h"

namespace tenon::slot_cache {
namespace {

__m128i to_half(__m256 v) {
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}
__m256 from_half(__m128i v) {
  return _mm256_cvtph_ps(v);
}

__m128i to_bf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
__m256 from_bf16(__m128i v) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

// What is left of a row goes through a full vector.
template <__m128i (*Convert)(__m256)>
void store(const float* from, uint32_t n, uint16_t* to) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), Convert(_mm256_loadu_ps(from + i)));
  }
  if (i == n) return;
  float rest[8] = {};
  uint16_t bits[8];
  memcpy(rest, from + i, (n - i) * sizeof(float));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(bits), Convert(_mm256_loadu_ps(rest)));
  memcpy(to + i, bits, (n - i) * 2);
}

template <__m256 (*Convert)(__m128i)>
void load(const uint16_t* from, uint32_t n, float* to) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, Convert(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  if (i == n) return;
  uint16_t bits[8] = {};
  float rest[8];
  memcpy(bits, from + i, (n - i) * 2);
  _mm256_storeu_ps(rest, Convert(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bits))));
  memcpy(to + i, rest, (n - i) * sizeof(float));
}

// Whole numbers by addition, as KvI8 rounds; a NaN becomes 0.
void store_i8(const float* from, uint32_t n, float scale, int8_t* to) {
  const __m256 unit = _mm256_set1_ps(scale), rounder = _mm256_set1_ps(12582912.0f);
  const __m256 most = _mm256_set1_ps(127.0f), least = _mm256_set1_ps(-127.0f);
  for (uint32_t i = 0; i < n; i += 8) {
    float part[8] = {};
    const uint32_t here = n - i < 8 ? n - i : 8;
    memcpy(part, from + i, here * sizeof(float));
    __m256 q = _mm256_sub_ps(_mm256_add_ps(_mm256_div_ps(_mm256_loadu_ps(part), unit), rounder), rounder);
    q = _mm256_and_ps(q, _mm256_cmp_ps(q, q, _CMP_ORD_Q));
    const __m256i whole = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(q, most), least));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    int8_t bytes[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm_packs_epi16(words, words));
    memcpy(to + i, bytes, here);
  }
}

void load_i8(const int8_t* from, uint32_t n, float scale, float* to) {
  const __m256 unit = _mm256_set1_ps(scale);
  for (uint32_t i = 0; i < n; i += 8) {
    int8_t part[16] = {};
    const uint32_t here = n - i < 8 ? n - i : 8;
    memcpy(part, from + i, here);
    const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(part)));
    float values[8];
    _mm256_storeu_ps(values, _mm256_mul_ps(_mm256_cvtepi32_ps(whole), unit));
    memcpy(to + i, values, here * sizeof(float));
  }
}

}  // namespace

void store_row_avx2(uint32_t codec, const float* from, uint32_t n, float scale, void* to) {
  if (codec == TENON_F16) {
    store<to_half>(from, n, static_cast<uint16_t*>(to));
  } else if (codec == TENON_BF16) {
    store<to_bf16>(from, n, static_cast<uint16_t*>(to));
  } else if (codec == TENON_I8) {
    store_i8(from, n, scale, static_cast<int8_t*>(to));
  } else {
    memcpy(to, from, n * sizeof(float));
  }
}

void load_row_avx2(uint32_t codec, const void* from, uint32_t n, float scale, float* to) {
  if (codec == TENON_F16) {
    load<from_half>(static_cast<const uint16_t*>(from), n, to);
  } else if (codec == TENON_BF16) {
    load<from_bf16>(static_cast<const uint16_t*>(from), n, to);
  } else if (codec == TENON_I8) {
    load_i8(static_cast<const int8_t*>(from), n, scale, to);
  } else {
    memcpy(to, from, n * sizeof(float));
  }
}

float most_of_row_avx2(const float* from, uint32_t n) {
  __m256 most = _mm256_setzero_ps();
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for (uint32_t i = 0; i < n; i += 8) {
    float part[8] = {};
    memcpy(part, from + i, (n - i < 8 ? n - i : 8) * sizeof(float));
    most = _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(part)), most);
  }
  float lanes[8], all = 0;
  _mm256_storeu_ps(lanes, most);
  for (const float x : lanes) all = x > all ? x : all;
  return all;
}

}  // namespace tenon::slot_cache
