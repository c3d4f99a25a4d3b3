#include <immintrin.h>
#include <string.h>

#include "convert.h"
#include "tenon/abi/types.h"

namespace tenon::static_cache {
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

}  // namespace

void store_row_avx2(uint32_t codec, const float* from, uint32_t n, void* to) {
  if (codec == TENON_F16) {
    store<to_half>(from, n, static_cast<uint16_t*>(to));
  } else if (codec == TENON_BF16) {
    store<to_bf16>(from, n, static_cast<uint16_t*>(to));
  } else {
    memcpy(to, from, n * sizeof(float));
  }
}

void load_row_avx2(uint32_t codec, const void* from, uint32_t n, float* to) {
  if (codec == TENON_F16) {
    load<from_half>(static_cast<const uint16_t*>(from), n, to);
  } else if (codec == TENON_BF16) {
    load<from_bf16>(static_cast<const uint16_t*>(from), n, to);
  } else {
    memcpy(to, from, n * sizeof(float));
  }
}

}  // namespace tenon::static_cache
