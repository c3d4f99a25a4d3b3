// This reads elements of a cache's codec as vectors of f32, with the bits of
// tenon/sdk/kv_codec.h. It is for kernels, as vector.h is.
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

// Decodes KvI4's numbers, from an element on that is a multiple of N.
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

// Returns the byte of a row where an element begins.
template <uint32_t kCodec>
constexpr size_t kv_byte(uint32_t element) {
  return kCodec == TENON_U8 ? element / 2 : size_t{element} * kElementBytes<kCodec>;
}

// Returns the elements [element, element + n) of a row, from a multiple of N on; the other lanes are 0. `scale` is
// that of their cell and head, for codecs that have scales.
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

#if defined(__AVX2__)

// These round eight numbers to the codecs, as convert.h and kv_codec.h do.
inline __m128i to_half(Floats<8> x) {
  return _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT);
}

inline __m128i to_bf16(Floats<8> x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

// Returns multiples of the scale as KvI8::encode rounds them, by an addition. The lower eight bytes count.
inline __m128i to_i8(Floats<8> x) {
  const __m256 rounder = _mm256_set1_ps(KvI8::kRounder);
  const __m256 most = _mm256_set1_ps(KvI8::kMost), least = _mm256_set1_ps(-KvI8::kMost);
  __m256 q = _mm256_sub_ps(_mm256_add_ps(x.v, rounder), rounder);
  q = _mm256_and_ps(q, _mm256_cmp_ps(q, q, _CMP_ORD_Q));
  const __m256i whole = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(q, most), least));
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  return _mm_packs_epi16(words, words);
}

// Returns multiples of the scale as KvI4::encode rounds them; a byte has two codes. The lower four bytes count.
inline __m128i to_i4(Floats<8> x) {
  const __m256 rounder = _mm256_set1_ps(KvI8::kRounder);
  const __m256 most = _mm256_set1_ps(KvI4::kMost - 1), least = _mm256_set1_ps(-KvI4::kMost);
  __m256 q = _mm256_sub_ps(_mm256_add_ps(x.v, rounder), rounder);
  q = _mm256_and_ps(q, _mm256_cmp_ps(q, q, _CMP_ORD_Q));
  const __m256 code = _mm256_sub_ps(_mm256_max_ps(_mm256_min_ps(q, most), least), least);
  const __m256i whole = _mm256_cvtps_epi32(code);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  const __m128i pairs = _mm_maddubs_epi16(_mm_packus_epi16(words, words), _mm_set1_epi16(16 << 8 | 1));
  return _mm_packus_epi16(pairs, pairs);
}

// Returns multiples of the scale as KvF8::encode rounds them. The lower eight bytes count.
inline __m128i to_f8(Floats<8> x) {
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

// It is the inverse of decode_kv(): elements [element, element + n) of a row, from a multiple of 8 on, get the first n
// lanes of x. `unit` has the scale of their cell and head in every lane, for codecs that have scales.
template <uint32_t kCodec>
[[gnu::always_inline]] inline void encode_kv(void* row, uint32_t element, uint32_t n, Floats<8> x, Floats<8> unit) {
  const __m128i bits = kCodec == TENON_F16      ? to_half(x)
                       : kCodec == TENON_BF16   ? to_bf16(x)
                       : kCodec == TENON_F8E4M3 ? to_f8(div(x, unit))
                       : kCodec == TENON_U8     ? to_i4(div(x, unit))
                                                : to_i8(div(x, unit));
  memcpy(static_cast<uint8_t*>(row) + kv_byte<kCodec>(element), &bits, kv_row_bytes(kCodec, n));
}

#endif

}  // namespace
}  // namespace tenon::sdk::cpu
