// Elements of a cache's codec as vectors of f32, with the bits of tenon/sdk/kv_codec.h. For kernels, as vector.h is.
#pragma once

#include "tenon/sdk/cpu/vector.h"

namespace tenon::sdk::cpu {
namespace {

// E4M3 becomes half precision by moving its bits, which gives a 256th of the number: KvF8::kHalfUnit.
#if defined(__AVX2__)
[[gnu::always_inline]] inline __m128i half_bits_of_f8(__m128i words) {  // eight codes, each in 16 bits
  const __m128i high = _mm_slli_epi16(words, 8);
  return _mm_or_si128(_mm_and_si128(high, _mm_set1_epi16(static_cast<int16_t>(0x8000))),
                      _mm_and_si128(_mm_srli_epi16(high, 1), _mm_set1_epi16(0x3f80)));
}
#endif
template <uint32_t N>
[[gnu::always_inline]] inline Floats<N> decode_f8(const uint8_t* from, uint32_t n) {
  uint8_t part[N] = {};
  if (n < N) {
    memcpy(part, from, n);
    from = part;
  }
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m128i low = half_bits_of_f8(_mm256_castsi256_si128(words));
    return {_mm512_cvtph_ps(_mm256_set_m128i(half_bits_of_f8(_mm256_extracti128_si256(words, 1)), low))};
  }
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) {
    const __m128i words = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return {_mm256_cvtph_ps(half_bits_of_f8(words))};
  }
#endif
  uint16_t half[N];
  for (uint32_t i = 0; i < N; ++i) half[i] = static_cast<uint16_t>((from[i] & 0x80) << 8 | (from[i] & 0x7f) << 7);
  return Floats<N>::template decode<TENON_F16>(half);
}

// The first n elements from there on; the other lanes are 0. scale: of their cell and head, for codecs that have scales.
template <uint32_t kCodec, uint32_t N>
[[gnu::always_inline]] inline Floats<N> decode_kv(const void* from, uint32_t n, float scale) {
  if constexpr (kCodec == TENON_F8E4M3) {
    return mul(decode_f8<N>(static_cast<const uint8_t*>(from), n), Floats<N>::all(256.0f * scale));
  } else {
    const Floats<N> x = Floats<N>::template decode_first<kCodec>(from, n);
    if constexpr (kCodec == TENON_I8) return mul(x, Floats<N>::all(scale));
    return x;
  }
}

}  // namespace
}  // namespace tenon::sdk::cpu
