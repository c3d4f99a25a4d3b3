// This reads elements of a cache's codec as vectors of f32, with the bits of tenon/sdk/kv_codec.h. It is for kernels, as vector.h is.
#pragma once

#include "tenon/sdk/cpu/coded_rows.h"
#include "tenon/sdk/kv_codec.h"

namespace tenon::sdk::cpu {
namespace {

// Returns KvF8's multiples of the scale / KvF8::Numbers::kUnit.
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

// KvI4's numbers, from an element on that is a multiple of N.
template <uint32_t N>
[[gnu::always_inline]] inline Floats<N> decode_i4(const uint8_t* row, uint32_t element, uint32_t n) {
  const uint8_t* from = row + element / 2;
  uint8_t part[(N + 1) / 2];
  if (n < N) {
    memset(part, KvI4::kZero | KvI4::kZero << 4, sizeof(part));
    memcpy(part, from, (n + 1) / 2);
    from = part;
  }
  const Floats<N> zero = Floats<N>::all(KvI4::kZero);
#if defined(__AVX2__)
  if constexpr (N == 8 || N == 16) {
    int64_t word = 0;
    memcpy(&word, from, N / 2);
    const __m128i bytes = _mm_cvtsi64_si128(word), mask = _mm_set1_epi8(15);
    const __m128i lower = _mm_and_si128(bytes, mask), upper = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
    return sub(Floats<N>::from_u8(_mm_unpacklo_epi8(lower, upper)), zero);
  }
#endif
  float x[N];
  for (uint32_t i = 0; i < N; ++i) x[i] = kv_code<KvI4>(from, element % 2 + i);
  return sub(Floats<N>::load(x), zero);
}

// The byte of a row where an element begins.
template <uint32_t kCodec>
constexpr size_t kv_byte(uint32_t element) {
  return kCodec == TENON_U8 ? element / 2 : size_t{element} * kElementBytes<kCodec>;
}

// Returns the elements [element, element + n) of a row, from a multiple of N on; the other lanes are 0. scale: of their cell and head, for
// codecs that have scales.
template <uint32_t kCodec, uint32_t N>
[[gnu::always_inline]] inline Floats<N> decode_kv(const void* row, uint32_t element, uint32_t n, float scale) {
  const auto* from = static_cast<const uint8_t*>(row) + kv_byte<kCodec>(element);
  if constexpr (kCodec == TENON_F8E4M3) {
    return mul(decode_f8<N>(from, n), Floats<N>::all(KvF8::Numbers::kUnit * scale));
  } else if constexpr (kCodec == TENON_U8) {
    return mul(decode_i4<N>(static_cast<const uint8_t*>(row), element, n), Floats<N>::all(scale));
  } else {
    const Floats<N> x = Floats<N>::template decode_first<kCodec>(from, n);
    if constexpr (kCodec == TENON_I8) return mul(x, Floats<N>::all(scale));
    return x;
  }
}

}  // namespace
}  // namespace tenon::sdk::cpu
