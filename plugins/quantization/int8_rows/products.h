// Products of rows of x in int8 with rows of int8 weights, as they lie in memory. They are for products.cc of a scheme's folder, which
// is compiled once for each instruction set: AVX-512 VNNI, AVX-VNNI, AVX2 or plain code.
//
// A product is an exact integer, so every instruction set and every tile has the same one: |w x| <= 128 * 127, and kMostWidth
// of them fit 32 bits. Then it is rounded to f32 once and multiplied by the product of both scales.
//
// VNNI multiplies bytes without a sign by bytes with one, so weights come with 128 added, and 128 times the sum of x is
// subtracted in the end; sums may wrap around on the way and come back. AVX2 multiplies |w| by x with w's sign: pairs of
// products stay below 2 * 128 * 127, which 16 bits hold.
//
// An example: 9 rows of x by 64 rows of weights of 4096 k under AVX-512. A tile is 6 rows of x by 4 of weights: 24 sums of
// 16 lanes. A step of 64 k loads 4 vectors of weights and 6 of x, and does 24 dot products. After 64 steps the lanes of
// four sums are added up together. Rows 6 and 7 of x make tiles of 2 by 4, row 8 tiles of 1 by 4.
//
// The naive twin is the loop in int64 of tests/conformance/int8_rows_test.cc.
#pragma once

#include "kernels.h"
#include "tenon/sdk/cpu/vector.h"

namespace tenon::int8_rows {
namespace {

using namespace sdk::cpu;

#if defined(__AVX512VNNI__)

struct Bytes {
  static constexpr uint32_t kStep = 64, kRows = 6, kColumns = 4;
  static constexpr int32_t kOffset = 128;
  __m512i v;
  static Bytes load(const void* p) { return {_mm512_loadu_si512(p)}; }
  // The first n, zeros after them.
  static Bytes load_first(const void* p, uint32_t n) { return {_mm512_maskz_loadu_epi8((uint64_t{1} << n) - 1, p)}; }
};
struct Weights {
  __m512i v;
  explicit Weights(Bytes w) : v(_mm512_xor_si512(w.v, _mm512_set1_epi8(static_cast<char>(0x80)))) {}
};
struct Sum {
  __m512i v = _mm512_setzero_si512();
  void add(const Weights& w, Bytes x) { v = _mm512_dpbusd_epi32(v, w.v, x.v); }
  int32_t total() const { return _mm512_reduce_add_epi32(v); }
};
// The totals of four sums.
inline __m128i totals(const Sum (&s)[4]) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0].v, s[1].v), _mm512_unpackhi_epi32(s[0].v, s[1].v));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2].v, s[3].v), _mm512_unpackhi_epi32(s[2].v, s[3].v));
  const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

#elif defined(__AVX2__)

struct Bytes {
#if defined(__AVXVNNI__)
  static constexpr int32_t kOffset = 128;
#else
  static constexpr int32_t kOffset = 0;
#endif
  static constexpr uint32_t kStep = 32, kRows = 2, kColumns = 4;
  __m256i v;
  static Bytes load(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
  static Bytes load_first(const void* p, uint32_t) { return load(p); }  // widths are whole steps
};
struct Weights {
#if defined(__AVXVNNI__)
  __m256i v;
  explicit Weights(Bytes w) : v(_mm256_xor_si256(w.v, _mm256_set1_epi8(static_cast<char>(0x80)))) {}
#else
  __m256i v, magnitude;
  explicit Weights(Bytes w) : v(w.v), magnitude(_mm256_abs_epi8(w.v)) {}
#endif
};
struct Sum {
  __m256i v = _mm256_setzero_si256();
  void add(const Weights& w, Bytes x) {
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
// The totals of four sums.
inline __m128i totals(const Sum (&s)[4]) {
  const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(s[0].v, s[1].v), _mm256_unpackhi_epi32(s[0].v, s[1].v));
  const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(s[2].v, s[3].v), _mm256_unpackhi_epi32(s[2].v, s[3].v));
  const __m256i all = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

#else

struct Bytes {
  static constexpr uint32_t kStep = 32, kRows = 1, kColumns = 1;
  static constexpr int32_t kOffset = 0;
  int8_t v[kStep];
  static Bytes load(const void* p) {
    Bytes b;
    memcpy(b.v, p, sizeof(b.v));
    return b;
  }
  static Bytes load_first(const void* p, uint32_t) { return load(p); }  // widths are whole steps
};
using Weights = Bytes;
struct Sum {
  int32_t v = 0;
  void add(const Weights& w, const Bytes& x) {
    for (uint32_t i = 0; i < Bytes::kStep; ++i) v += w.v[i] * x.v[i];
  }
  int32_t total() const { return v; }
};

#endif

inline float scale_at(const uint8_t* row) {
  float scale;
  memcpy(&scale, row, sizeof(scale));
  return scale;
}

// y = (total + more) * (scale of x * scale of the weights). The integers may wrap around on the way.
template <uint32_t C>
inline void finish(const Sum (&sum)[C], int32_t more, float x_scale, const float (&scale)[C], float* y) {
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

// R rows of x from `row` on by C rows of weights from `column` on. One row of x meets them one after the other, as they lie in
// memory, which reads them a third faster than several side by side; more rows of x meet all C at once, which loads x once.
template <uint32_t R, uint32_t C>
inline void multiply_tile(const PackedProduct& t, uint32_t row, uint32_t column) {
  constexpr uint32_t kScaleBytes = 4, kAtOnce = R == 1 ? 1 : C;
  const uint32_t k = t.x.k, blocks = k / kInt8Block, rest = k % Bytes::kStep;
  const size_t row_bytes = t.group_bytes / kGroupRows;
  const uint8_t* w = t.weights + column * row_bytes;
  const int8_t* x = t.x.q + size_t{row} * k;
  Sum sum[R][C];
  const auto add = [&](auto load, uint32_t first, uint32_t i) {
    Bytes bytes[kAtOnce];
#pragma GCC unroll 4
    for (uint32_t c = 0; c < kAtOnce; ++c) {
      const uint8_t* from = w + (first + c) * row_bytes + kScaleBytes + i;
      if constexpr (R == 1) prefetch(from + kAhead, Bytes::kStep);
      bytes[c] = load(from);
    }
    const Weights weights[4] = {Weights(bytes[0]), Weights(bytes[1 % kAtOnce]), Weights(bytes[2 % kAtOnce]),
                                Weights(bytes[3 % kAtOnce])};
#pragma GCC unroll 6
    for (uint32_t r = 0; r < R; ++r) {
      const Bytes of_row = load(x + size_t{r} * k + i);
#pragma GCC unroll 4
      for (uint32_t c = 0; c < kAtOnce; ++c) sum[r][first + c].add(weights[c], of_row);
    }
  };
#pragma GCC unroll 4
  for (uint32_t first = 0; first < C; first += kAtOnce) {
    uint32_t i = 0;
    for (; i + Bytes::kStep <= k; i += Bytes::kStep) add([](const void* p) { return Bytes::load(p); }, first, i);
    if (rest != 0) add([&](const void* p) { return Bytes::load_first(p, rest); }, first, i);
  }

  float scale[C];
  for (uint32_t c = 0; c < C; ++c) scale[c] = scale_at(w + c * row_bytes);
#pragma GCC unroll 6
  for (uint32_t r = 0; r < R; ++r) {
    const size_t at = size_t{row + r} * blocks;
    finish(sum[r], Bytes::kOffset * t.x.negative32[at], t.x.scale[at], scale, t.y + (row + r) * t.y_stride + column);
  }
}

template <uint32_t R>
inline void multiply_rows(const PackedProduct& t, uint32_t row) {
  uint32_t c = 0;
  for (; c + Bytes::kColumns <= t.columns; c += Bytes::kColumns) multiply_tile<R, Bytes::kColumns>(t, row, c);
  for (; c < t.columns; ++c) multiply_tile<R, 1>(t, row, c);
}

// The row formats of row_kernels.h know rows packed sixteen side by side; here a row is a sixteenth of a group's bytes.
void product(const PackedProduct& t) {
  uint32_t row = 0;
  for (; row + Bytes::kRows <= t.rows; row += Bytes::kRows) multiply_rows<Bytes::kRows>(t, row);
  if constexpr (Bytes::kRows > 2) {
    for (; row + 2 <= t.rows; row += 2) multiply_rows<2>(t, row);
  }
  for (; row < t.rows; ++row) multiply_rows<1>(t, row);
}

constexpr PackedFormat kProductFormats[] = {{kInt8Row, &product}};

}  // namespace
}  // namespace tenon::int8_rows
