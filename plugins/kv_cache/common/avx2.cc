// Rows of a cache's cells, eight elements at a time. What is left of a row goes through a full vector. The naive twin is
// tenon/sdk/kv_codec.h.
#include "convert.h"
#include "tenon/abi/types.h"
#include "tenon/sdk/cpu/kv_vector.h"

namespace tenon::slot_cache {
namespace {

using Eight = sdk::cpu::Floats<8>;

__m128i to_half(Eight x) {
  return _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT);
}

__m128i to_bf16(Eight x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

// Whole numbers by addition, as KvI8 rounds; a NaN becomes 0. The lower eight bytes count.
__m128i to_i8(Eight x) {
  const __m256 rounder = _mm256_set1_ps(12582912.0f);
  const __m256 most = _mm256_set1_ps(127.0f), least = _mm256_set1_ps(-127.0f);
  __m256 q = _mm256_sub_ps(_mm256_add_ps(x.v, rounder), rounder);
  q = _mm256_and_ps(q, _mm256_cmp_ps(q, q, _CMP_ORD_Q));
  const __m256i whole = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(q, most), least));
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  return _mm_packs_epi16(words, words);
}

// It rounds as KvI4::encode does; a byte has two codes. The lower four bytes count.
__m128i to_i4(Eight x) {
  const __m256 rounder = _mm256_set1_ps(12582912.0f);
  const __m256 most = _mm256_set1_ps(7.0f), least = _mm256_set1_ps(-8.0f);
  __m256 q = _mm256_sub_ps(_mm256_add_ps(x.v, rounder), rounder);
  q = _mm256_and_ps(q, _mm256_cmp_ps(q, q, _CMP_ORD_Q));
  const __m256 code = _mm256_sub_ps(_mm256_max_ps(_mm256_min_ps(q, most), least), least);
  const __m256i whole = _mm256_cvtps_epi32(code);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  const __m128i pairs = _mm_maddubs_epi16(_mm_packus_epi16(words, words), _mm_set1_epi16(16 << 8 | 1));
  return _mm_packus_epi16(pairs, pairs);
}

// It rounds as KvF8::encode does. The lower eight bytes count.
__m128i to_f8(Eight x) {
  const __m256i bits = _mm256_castps_si256(x.v), magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(magnitude, _mm256_set1_epi32(0x7ffff)), odd);
  const __m256i normal = _mm256_min_epi32(_mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32(120 << 3)),
                                          _mm256_set1_epi32(0x7e));
  const __m256 shifted = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p14f));
  const __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x46800000));
  const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), magnitude);
  const __m256i code = _mm256_or_si256(sign, _mm256_blendv_epi8(normal, subnormal, is_subnormal));
  const __m256i number = _mm256_and_si256(code, _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_ORD_Q)));
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(number), _mm256_extracti128_si256(number, 1));
  return _mm_packus_epi16(words, words);
}

// f(i, 8) for every eight elements [i, i + 8), then f(i, rest) for the rest.
template <class F>
[[gnu::always_inline]] inline void each_eight(uint32_t n, F&& f) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) f(i, 8U);
  if (i < n) f(i, n - i);
}

template <uint32_t Codec>
void store_row(const float* from, uint32_t n, float scale, void* to) {
  const Eight unit = Eight::all(scale);
  each_eight(n, [&](uint32_t i, uint32_t here) {
    const Eight x = Eight::load_first(from + i, here);
    const __m128i bits = Codec == TENON_F16      ? to_half(x)
                         : Codec == TENON_BF16   ? to_bf16(x)
                         : Codec == TENON_F8E4M3 ? to_f8(div(x, unit))
                         : Codec == TENON_U8     ? to_i4(div(x, unit))
                                                 : to_i8(div(x, unit));
    memcpy(static_cast<uint8_t*>(to) + sdk::cpu::kv_byte<Codec>(i), &bits, sdk::kv_row_bytes(Codec, here));
  });
}

template <uint32_t Codec>
void load_row(const void* from, uint32_t n, float scale, float* to) {
  each_eight(n, [&](uint32_t i, uint32_t here) {
    const Eight x = sdk::cpu::decode_kv<Codec, 8>(from, i, here, scale);
    memcpy(to + i, &x.v, here * sizeof(float));
  });
}

}  // namespace

void store_row_avx2(uint32_t codec, const float* from, uint32_t n, float scale, void* to) {
  if (codec == TENON_F16) return store_row<TENON_F16>(from, n, scale, to);
  if (codec == TENON_BF16) return store_row<TENON_BF16>(from, n, scale, to);
  if (codec == TENON_I8) return store_row<TENON_I8>(from, n, scale, to);
  if (codec == TENON_F8E4M3) return store_row<TENON_F8E4M3>(from, n, scale, to);
  if (codec == TENON_U8) return store_row<TENON_U8>(from, n, scale, to);
  memcpy(to, from, n * sizeof(float));
}

void load_row_avx2(uint32_t codec, const void* from, uint32_t n, float scale, float* to) {
  if (codec == TENON_F16) return load_row<TENON_F16>(from, n, scale, to);
  if (codec == TENON_BF16) return load_row<TENON_BF16>(from, n, scale, to);
  if (codec == TENON_I8) return load_row<TENON_I8>(from, n, scale, to);
  if (codec == TENON_F8E4M3) return load_row<TENON_F8E4M3>(from, n, scale, to);
  if (codec == TENON_U8) return load_row<TENON_U8>(from, n, scale, to);
  memcpy(to, from, n * sizeof(float));
}

float most_of_row_avx2(const float* from, uint32_t n) {
  Eight most = Eight::zeros(), least = Eight::zeros();  // least: of the negative elements, negated
  each_eight(n, [&](uint32_t i, uint32_t here) {
    const Eight x = Eight::load_first(from + i, here);
    most = max(x, most);
    least = max(negative(x), least);
  });
  const float positive = largest(most), below = largest(least);
  return below > positive ? -below : positive;
}

}  // namespace tenon::slot_cache
