// This is the work on rows beside products: RMSNorm, their conversion to int8, SiLU. Most are plain loops, written so
// that compilers make vectors of them; every instruction set gives the same bits (contraction must be off). For the one
// source of an instruction set, see vector.h.
#pragma once

#include <math.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "tenon/sdk/cpu/activation.h"
#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::sdk::cpu {
namespace {

// Eight sums in double are always added in the same order.
void rms_norm(const float* x, const float* weight, uint32_t n, float eps, float* y) {
  double lane[8] = {};
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (uint32_t l = 0; l < 8; ++l) lane[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  }
  for (uint32_t l = 0; i < n; ++i, ++l) lane[l] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  const auto scale = static_cast<float>(1 / sqrt(sum / n + static_cast<double>(eps)));
  for (i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

#if defined(__AVX2__)

// Returns the largest magnitude of 32 floats as bits: these have the same order as magnitudes.
uint32_t largest_bits(const float* x) {
  const auto magnitude = [&](int i) {
    return _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 8 * i)), _mm256_set1_epi32(0x7fffffff));
  };
  const __m256i eight =
      _mm256_max_epu32(_mm256_max_epu32(magnitude(0), magnitude(1)), _mm256_max_epu32(magnitude(2), magnitude(3)));
  __m128i most = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(most));
}

// Computes q = x * factor to the nearest, from -127 to 127; `halves` get the sums of the first and the last 16.
void round_block(const float* x, float factor, int8_t* q, int32_t* halves) {
  const auto rounded = [&](int i) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(factor)));
  };
  // Packs go by halves of a register: afterwards words of 4 q lie as 0 2 4 6 1 3 5 7.
  const __m256i mixed =
      _mm256_packs_epi16(_mm256_packs_epi32(rounded(0), rounded(1)), _mm256_packs_epi32(rounded(2), rounded(3)));
  const __m256i all = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), all);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), all);
  __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
  halves[0] = _mm256_extract_epi32(sums, 0);
  halves[1] = _mm256_extract_epi32(sums, 4);
}

// x * factor to the nearest, which is from -32639 to 32639, is 256 high + low, both from -128 to 127. q: high, low;
// words: the number itself. sums: those of high and of low.
void split_block(const float* x, float factor, int8_t* q, int16_t* words, int32_t* sums) {
  const auto rounded = [&](int i) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(factor)));
  };
  const __m256i first = _mm256_packs_epi32(rounded(0), rounded(1)), second = _mm256_packs_epi32(rounded(2), rounded(3));
  const auto high = [](__m256i a) { return _mm256_srai_epi16(_mm256_add_epi16(a, _mm256_set1_epi16(128)), 8); };
  const auto low = [&](__m256i a) { return _mm256_sub_epi16(a, _mm256_slli_epi16(high(a), 8)); };
  const auto put = [&](__m256i a, __m256i b, int part) {
    // Packs go by halves of a register: afterwards words of 4 q lie as 0 2 4 6 1 3 5 7.
    const __m256i all =
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 32 * part), all);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), all);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    sums[part] = _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  };
  put(high(first), high(second), 0);
  put(low(first), low(second), 1);
  const auto put_words = [&](__m256i mixed, int half) {
    // The pack left fours of numbers as 0 2 1 3, each of which becomes what word_place() says.
    const __m256i places =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 16 * half),
                        _mm256_permute4x64_epi64(_mm256_shuffle_epi8(mixed, places), 0xd8));
  };
  put_words(first, 0);
  put_words(second, 1);
}

#else

void split_block(const float* x, float factor, int8_t* q, int16_t* words, int32_t* sums) {
  sums[0] = sums[1] = 0;
  for (uint32_t i = 0; i < kInt8Block; ++i) {
    const auto value = static_cast<int32_t>((x[i] * factor + 0x1.8p23F) - 0x1.8p23F);
    const int32_t high = (value + 128) >> 8;
    q[i] = static_cast<int8_t>(high);
    q[kInt8Block + i] = static_cast<int8_t>(value - 256 * high);
    words[word_place(i)] = static_cast<int16_t>(value);
    sums[0] += high;
    sums[1] += value - 256 * high;
  }
}

uint32_t largest_bits(const float* x) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < kInt8Block; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

void round_block(const float* x, float factor, int8_t* q, int32_t* halves) {
  halves[0] = halves[1] = 0;
  for (uint32_t i = 0; i < kInt8Block; ++i) {
    q[i] = static_cast<int8_t>((x[i] * factor + 0x1.8p23F) - 0x1.8p23F);
    halves[i / 16] += q[i];
  }
}

#endif

// A block's scale makes its largest magnitude kMost, and its factor makes integers of its values.
struct BlockScale {
  bool finite;
  float scale, factor;

  BlockScale(const float* x, float most) {
    constexpr uint32_t kInfinite = 0x7f800000;
    const uint32_t largest = largest_bits(x);
    finite = largest < kInfinite;
    scale = __builtin_bit_cast(float, finite ? largest : 0) / most;
    const float inverse = 1.0F / scale;
    // A scale so small that its inverse overflows belongs to values that vanish beside any other.
    factor = inverse <= 3.4028235e38F ? inverse : 0.0F;
  }
};

// Makes int8 of a row. Each block of 32 has scale = absmax / 127 and q = x * (127 / absmax) to the nearest (halves to
// even). k is a multiple of 32. A block with a value that is not finite gets NaN for its scale: so do its products.
void quantize_row(const float* x, uint32_t k, const Int8Row& to) {
  for (uint32_t b = 0; b < k / kInt8Block; ++b) {
    const float* from = x + size_t{b} * kInt8Block;
    int8_t* q = to.q + size_t{b} * kInt8Block;
    const BlockScale block(from, 127.0F);
    int32_t half[2] = {};
    if (block.finite) {
      round_block(from, block.factor, q, half);
    } else {
      memset(q, 0, kInt8Block);
    }
    to.negative16[2 * b] = -half[0];
    to.negative16[2 * b + 1] = -half[1];
    to.negative32[b] = -(half[0] + half[1]);
    to.scale[b] = block.finite ? block.scale : __builtin_nanf("");
    to.sum[b] = to.scale[b] * static_cast<float>(half[0] + half[1]);
  }
}

// Makes 16 bits of a row. Each block of 32 has scale = absmax / 32639, and x * (32639 / absmax) to the nearest (halves
// to even) is 256 high + low. The last block may have fewer values; it and all up to int16_blocks(k) are filled up with
// zeros. A block with a value that is not finite gets NaN for its scale: so do its products.
void split_row(const float* x, uint32_t k, const Int16Row& to) {
  for (uint32_t b = 0; b < int16_blocks(k); ++b) {
    const uint32_t begin = b * kInt8Block;
    float filled[kInt8Block] = {};
    const float* from = x + begin;
    if (begin + kInt8Block > k) {
      if (begin < k) memcpy(filled, from, (k - begin) * sizeof(float));
      from = filled;
    }
    int8_t* q = to.q + size_t{b} * 2 * kInt8Block;
    int16_t* words = to.words + size_t{b} * kInt8Block;
    const BlockScale block(from, 32639.0F);
    int32_t sums[2] = {};
    if (block.finite) {
      split_block(from, block.factor, q, words, sums);
    } else {
      memset(q, 0, size_t{2} * kInt8Block);
      memset(words, 0, kInt8Block * sizeof(*words));
    }
    to.negative[2 * b] = -sums[0];
    to.negative[2 * b + 1] = -sums[1];
    to.scale[b] = block.finite ? block.scale : __builtin_nanf("");
    to.sum[b] = to.scale[b] * static_cast<float>(256 * sums[0] + sums[1]);
  }
}

void silu_mul(float* gate, const float* up, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) gate[i] = silu(gate[i]) * up[i];
}

constexpr RowOps kRowOps{&rms_norm, &quantize_row, &silu_mul, &split_row};

}  // namespace
}  // namespace tenon::sdk::cpu
