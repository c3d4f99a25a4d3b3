// Products of int8 activations (int8_activations.h) with GGUF's blocks of 32, by integer dot products. For the one
// source of an instruction set, see vector.h; AVX2, AVX-512 VNNI (on half its width, one block at a time) or plain
// code.
//
// Lane j (of 8) of a block is the exact sum of code * q over elements 4 j to 4 j + 3; lanes times (weight scale *
// activation scale) go into one sum by fused multiply-add, block after block, then fold in halves; the blocks' minima
// times the activations' sums make another sum, added last.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"
#include "tenon/sdk/cpu/vector.h"

#if !defined(__AVX2__)
#include "tenon/sdk/cpu/gguf_blocks.h"
#endif

namespace tenon::sdk::cpu {
namespace {

#if defined(__AVX2__)

using Codes = __m256i;
struct Sums {
  __m256 v;
};
inline Sums no_sums() {
  return {_mm256_setzero_ps()};
}
inline Codes codes_at(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Codes nibbles_at(const uint8_t* p) {
  const __m128i b = load_bytes(p);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
}
// 16 where bit j is set.
inline Codes fifth_bits_at(const uint8_t* p) {
  int32_t word;
  memcpy(&word, p, sizeof(word));
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(word), _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), _mm256_set1_epi8(16));
}
inline Codes join(Codes a, Codes b) {
  return _mm256_or_si256(a, b);
}
template <bool Signed>
inline Sums dot(Codes codes, const int8_t* q, float scale, Sums sums) {
  __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q)), w = codes;
  if constexpr (Signed) x = _mm256_sign_epi8(x, codes), w = _mm256_abs_epi8(codes);
#if defined(__AVX512VNNI__)
  const __m256i lanes = _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, x);
#else
  const __m256i lanes = _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
#endif
  return {_mm256_fmadd_ps(_mm256_cvtepi32_ps(lanes), _mm256_set1_ps(scale), sums.v)};
}
inline float total(Sums s) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(s.v), _mm256_extractf128_ps(s.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float fused(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
inline float scale_at(const uint8_t* p) {
  return half_scale(p);
}

#else

struct Codes {
  int32_t v[32];
};
struct Sums {
  float v[8];
};
inline Sums no_sums() {
  return {};
}
inline Codes codes_at(const uint8_t* p) {
  Codes c;
  for (int i = 0; i < 32; ++i) c.v[i] = static_cast<int8_t>(p[i]);
  return c;
}
inline Codes nibbles_at(const uint8_t* p) {
  Codes c;
  for (int i = 0; i < 16; ++i) c.v[i] = p[i] & 15, c.v[i + 16] = p[i] >> 4;
  return c;
}
inline Codes fifth_bits_at(const uint8_t* p) {
  Codes c;
  for (int i = 0; i < 32; ++i) c.v[i] = ((p[i / 8] >> (i % 8)) & 1) << 4;
  return c;
}
inline Codes join(Codes a, const Codes& b) {
  for (int i = 0; i < 32; ++i) a.v[i] |= b.v[i];
  return a;
}
template <bool Signed>
inline Sums dot(const Codes& w, const int8_t* q, float scale, Sums sums) {
  for (int j = 0; j < 8; ++j) {
    int32_t lane = 0;
    for (int i = 4 * j; i < 4 * j + 4; ++i) lane += w.v[i] * q[i];
    sums.v[j] = __builtin_fmaf(static_cast<float>(lane), scale, sums.v[j]);
  }
  return sums;
}
inline float total(Sums s) {
  for (int half = 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) s.v[i] = s.v[i] + s.v[i + half];
  }
  return s.v[0];
}
inline float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline float scale_at(const uint8_t* p) {
  return half_at(p);
}

#endif

struct Q4_0Codes {
  static constexpr bool kSigned = false, kMinimum = true;
  static constexpr size_t kBytes = 18;
  static Codes codes(const uint8_t* p) { return nibbles_at(p + 2); }
  static float minimum(const uint8_t* p) { return -8 * scale_at(p); }
};
struct Q4_1Codes {
  static constexpr bool kSigned = false, kMinimum = true;
  static constexpr size_t kBytes = 20;
  static Codes codes(const uint8_t* p) { return nibbles_at(p + 4); }
  static float minimum(const uint8_t* p) { return scale_at(p + 2); }
};
struct Q5_0Codes {
  static constexpr bool kSigned = false, kMinimum = true;
  static constexpr size_t kBytes = 22;
  static Codes codes(const uint8_t* p) { return join(nibbles_at(p + 6), fifth_bits_at(p + 2)); }
  static float minimum(const uint8_t* p) { return -16 * scale_at(p); }
};
struct Q5_1Codes {
  static constexpr bool kSigned = false, kMinimum = true;
  static constexpr size_t kBytes = 24;
  static Codes codes(const uint8_t* p) { return join(nibbles_at(p + 8), fifth_bits_at(p + 4)); }
  static float minimum(const uint8_t* p) { return scale_at(p + 2); }
};
struct Q8_0Codes {
  static constexpr bool kSigned = true, kMinimum = false;
  static constexpr size_t kBytes = 34;
  static Codes codes(const uint8_t* p) { return codes_at(p + 2); }
  static float minimum(const uint8_t*) { return 0; }
};

template <class F, uint32_t R, uint32_t C>
inline void int8_tile(const Int8Product& t, uint32_t row, uint32_t column) {
  Sums sums[R * C];
  float minima[R * C] = {};
  for (Sums& s : sums) s = no_sums();
  const uint32_t blocks = t.k / kInt8Block;
  const uint8_t* w = t.weights + size_t{column} * t.row_bytes;
  for (uint32_t b = 0; b < blocks; ++b, w += F::kBytes) {
    for (uint32_t c = 0; c < C; ++c) {
      const uint8_t* p = w + c * t.row_bytes;
      prefetch(p + C * t.row_bytes);
      const Codes codes = F::codes(p);
      const float scale = scale_at(p), minimum = F::minimum(p);
      for (uint32_t r = 0; r < R; ++r) {
        const size_t block = size_t{row + r} * blocks + b;
        const uint32_t i = r * C + c;
        sums[i] = dot<F::kSigned>(codes, t.q + block * kInt8Block, scale * t.scale[block], sums[i]);
        if constexpr (F::kMinimum) minima[i] = fused(minimum, t.sum[block], minima[i]);
      }
    }
  }
  for (uint32_t i = 0; i < R * C; ++i) {
    const float sum = total(sums[i]);
    t.y[(row + i / C) * t.y_stride + column + i % C] = F::kMinimum ? sum + minima[i] : sum;
  }
}

template <class F>
void int8_product(const Int8Product& t) {
  uint32_t row = 0;
  for (; row + 4 <= t.rows; row += 4) {
    for (uint32_t c = 0; c < t.columns; ++c) int8_tile<F, 4, 1>(t, row, c);
  }
  for (; row < t.rows; ++row) {
    uint32_t c = 0;
    for (; c + 4 <= t.columns; c += 4) int8_tile<F, 1, 4>(t, row, c);
    for (; c < t.columns; ++c) int8_tile<F, 1, 1>(t, row, c);
  }
}

constexpr Int8Format kInt8Formats[] = {{TENON_Q4_0, &int8_product<Q4_0Codes>},
                                       {TENON_Q4_1, &int8_product<Q4_1Codes>},
                                       {TENON_Q5_0, &int8_product<Q5_0Codes>},
                                       {TENON_Q5_1, &int8_product<Q5_1Codes>},
                                       {TENON_Q8_0, &int8_product<Q8_0Codes>}};
constexpr Int8Table kInt8Table{kInt8Formats, sizeof(kInt8Formats) / sizeof(kInt8Formats[0])};

}  // namespace
}  // namespace tenon::sdk::cpu
