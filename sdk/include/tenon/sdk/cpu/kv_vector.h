// Elements of a cache's codec as vectors of f32, with the bits of tenon/sdk/kv_codec.h. For kernels, as vector.h is.
#pragma once

#include "tenon/sdk/cpu/coded_rows.h"
#include "tenon/sdk/kv_codec.h"

namespace tenon::sdk::cpu {
namespace {

// KvF8's multiples of the scale / KvF8::Numbers::kUnit.
template <uint32_t N>
[[gnu::always_inline]] inline Floats<N> decode_f8(const uint8_t* from, uint32_t n) {
  using Numbers = KvF8::Numbers;
  uint8_t part[N] = {};
  if (n < N) {
    memcpy(part, from, n);
    from = part;
  }
#if defined(__AVX512F__)
  if constexpr (N == 16) return small_floats<Numbers>(load_bytes(from));
#elif defined(__AVX2__)
  if constexpr (N == 8) {
    const Codes16 codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves_of<Numbers>(codes)))};
  }
#endif
  uint16_t half[N];
  for (uint32_t i = 0; i < N; ++i) half[i] = Numbers::half_bits(from[i]);
  return Floats<N>::template decode<TENON_F16>(half);
}

// The first n elements from there on; the other lanes are 0. scale: of their cell and head, for codecs that have scales.
template <uint32_t kCodec, uint32_t N>
[[gnu::always_inline]] inline Floats<N> decode_kv(const void* from, uint32_t n, float scale) {
  if constexpr (kCodec == TENON_F8E4M3) {
    return mul(decode_f8<N>(static_cast<const uint8_t*>(from), n), Floats<N>::all(KvF8::Numbers::kUnit * scale));
  } else {
    const Floats<N> x = Floats<N>::template decode_first<kCodec>(from, n);
    if constexpr (kCodec == TENON_I8) return mul(x, Floats<N>::all(scale));
    return x;
  }
}

}  // namespace
}  // namespace tenon::sdk::cpu
