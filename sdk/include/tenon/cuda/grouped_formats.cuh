// Formats (formats.cuh) of few bits whose weights share a scale, and an offset where there is one, in groups along k:
// w = s (q - bias) + z, q unsigned. Group: k of a group, a power of two from 16 on.
//   Weights: how the q of 64 k lie. kBias, kStaggered; kBytes of 64 k
//     load(address), then fragments(step, a): A fragments of denormal halves for 16 k
//     unpack(from, block, lane, q): q[0], q[1] = 8 of rows lane / 4 and + 8, of 32-k block 0 or 1
//     put(to, row, k, q): 8 of a row, in bytes that no other row has; k divisible by 8
//   Scales: how s and z lie. kOffsets: there are z; kHeader: bytes before those of groups, kGroupBytes of a group
//     load(from, group, g): Words, those of rows g and g + 8; scale(words, i), offset(words, i): s and z of row g + 8 i
//     place(row, group): where a row's are
// A segment: [64 k of weights], then its scales.
#pragma once

#include "tenon/cuda/formats.cuh"

namespace tenon::cuda {

// 4 bits. [lane][a u32 a k-step]. The u32: bits 0-3 (row g, k0), 4-7 (g, k0 + 2), 8-15 row g + 8 likewise, and in the
// upper half k0 + 1 and k0 + 3. Two masks and a shift make A fragments; those of k0 + 2 and k0 + 3 are 16 times too
// large, and x there 16 times too small.
template <int Bias>
struct Nibbles {
  static constexpr int kBias = Bias;
  static constexpr bool kStaggered = true;
  static constexpr uint32_t kBytes = 512;

  __device__ __forceinline__ void load(uint32_t address) { words_ = load_shared(address + 16 * lane_id()); }
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    const uint32_t word[4] = {words_.x, words_.y, words_.z, words_.w};
    const uint32_t w = word[step], v = w >> 8;
    a[0] = w & 0x000f000f, a[1] = v & 0x000f000f, a[2] = w & 0x00f000f0, a[3] = v & 0x00f000f0;
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const uint2 words = *reinterpret_cast<const uint2*>(from + lane * 16 + block * 8);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, j = i % 4, word = i / 4 % 2 == 0 ? words.x : words.y;
      q[row][i % 8] = word >> (8 * row + j % 2 * 16 + j / 2 * 4) & 15;
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    to += lane_offset(row, k) + k / 32 * 8 + row / 8;
    for (uint32_t step = 0; step < 2; ++step) {
      for (uint32_t odd = 0; odd < 2; ++odd) {
        to[4 * step + 2 * odd] = static_cast<uint8_t>((q[4 * step + odd] & 15) | (q[4 * step + odd + 2] & 15) << 4);
      }
    }
  }

 private:
  uint4 words_;
};

// 6 bits: the lower four as Nibbles, then the upper two, [lane][a u32 a block of 32 k]. The u32: bits 4-5 (row g, k0),
// 6-7 (g, k0 + 2), 0-3 those of the next k-step, 8-15 row g + 8 likewise, and in the upper half k0 + 1 and k0 + 3.
template <int Bias>
struct Sixes {
  static constexpr int kBias = Bias;
  static constexpr bool kStaggered = true;
  static constexpr uint32_t kLower = Nibbles<0>::kBytes, kBytes = kLower + 256;

  __device__ __forceinline__ void load(uint32_t address) {
    lower_.load(address);
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(upper_.x), "=r"(upper_.y)
                 : "r"(address + kLower + 8 * lane_id()));
  }
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    lower_.fragments(step, a);
    const uint32_t u = step < 2 ? upper_.x : upper_.y;
    constexpr uint32_t kFirst = 0x00300030, kSecond = 0x03000300;
    if (step % 2 == 0) {
      a[0] |= u & kFirst, a[1] |= u >> 8 & kFirst, a[2] |= u << 2 & kSecond, a[3] |= u >> 6 & kSecond;
    } else {
      a[0] |= u << 4 & kFirst, a[1] |= u >> 4 & kFirst, a[2] |= u << 6 & kSecond, a[3] |= u >> 2 & kSecond;
    }
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    Nibbles<0>::unpack(from, block, lane, q);
    const uint32_t u = *reinterpret_cast<const uint32_t*>(from + kLower + lane * 8 + block * 4);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, j = i % 4;
      q[row][i % 8] |= (u >> (8 * row + j % 2 * 16 + upper_bit(i % 8)) & 3) << 4;
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    Nibbles<0>::put(to, row, k, q);
    to += kLower + lane_offset(row, k) / 2 + k / 32 * 4 + row / 8;
    for (uint32_t odd = 0; odd < 2; ++odd) {
      uint32_t byte = 0;
      for (uint32_t i = odd; i < 8; i += 2) byte |= (q[i] >> 4) << upper_bit(i);
      to[2 * odd] = static_cast<uint8_t>(byte);
    }
  }

 private:
  static __device__ uint32_t upper_bit(uint32_t i) { return 4 - i / 4 * 4 + i % 4 / 2 * 2; }

  Nibbles<0> lower_;
  uint2 upper_;
};

// 8 bits. [32 k][lane][4 bytes row g, 4 bytes row g + 8, for each k-step]
template <int Bias>
struct Bytes {
  static constexpr int kBias = Bias;
  static constexpr bool kStaggered = false;
  static constexpr uint32_t kBytes = 1024;

  __device__ __forceinline__ void load(uint32_t address) {
    words_[0] = load_shared(address + 16 * lane_id()), words_[1] = load_shared(address + 512 + 16 * lane_id());
  }
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    const uint4& w = words_[step / 2];
    const uint32_t low = step % 2 == 0 ? w.x : w.z, high = step % 2 == 0 ? w.y : w.w;
    a[0] = __byte_perm(low, 0, 0x4140), a[1] = __byte_perm(high, 0, 0x4140);
    a[2] = __byte_perm(low, 0, 0x4342), a[3] = __byte_perm(high, 0, 0x4342);
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    for (uint32_t i = 0; i < 16; ++i) q[i / 4 % 2][i / 8 * 4 + i % 4] = from[block * 512 + lane * 16 + i];
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    to += k / 32 * 512 + lane_offset(row, k) + row / 8 * 4;
    for (uint32_t i = 0; i < 8; ++i) to[i / 4 * 8 + i % 4] = static_cast<uint8_t>(q[i]);
  }

 private:
  uint4 words_[2];
};

// Where scales are read from.
struct SharedBytes {
  uint32_t address;
  __device__ __forceinline__ uint32_t half_word(uint32_t at) const {
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address + at));
    return v;
  }
  __device__ __forceinline__ uint32_t word(uint32_t at) const {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address + at));
    return v;
  }
  __device__ __forceinline__ uint2 two_words(uint32_t at) const {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address + at));
    return v;
  }
};
struct PlainBytes {
  const uint8_t* from;
  __device__ uint32_t half_word(uint32_t at) const { return *reinterpret_cast<const uint16_t*>(from + at); }
  __device__ uint32_t word(uint32_t at) const { return *reinterpret_cast<const uint32_t*>(from + at); }
  __device__ uint2 two_words(uint32_t at) const { return *reinterpret_cast<const uint2*>(from + at); }
};

// Of each row and group (s, z), s in the lower half. [group][g][row g, row g + 8]
template <class H>
struct ScalePairs {
  using Words = uint2;
  static constexpr bool kOffsets = true;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 64;
  static __host__ __device__ uint32_t place(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 8 + row / 8 * 4;
  }
  template <class Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return m.two_words(group * kGroupBytes + g * 8);
  }
  static __device__ __forceinline__ float scale(const Words& w, uint32_t i) {
    return from_half<H>((i == 0 ? w.x : w.y) & 0xffff);
  }
  static __device__ __forceinline__ float offset(const Words& w, uint32_t i) {
    return from_half<H>((i == 0 ? w.x : w.y) >> 16);
  }
};

// An fp16 s. [group][g][row g, row g + 8]
struct HalfScales {
  using Words = uint32_t;
  static constexpr bool kOffsets = false;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 32;
  static __host__ __device__ uint32_t place(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 4 + row / 8 * 2;
  }
  template <class Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return m.word(group * kGroupBytes + g * 4);
  }
  static __device__ __forceinline__ float scale(Words w, uint32_t i) {
    return from_half<__half>(i == 0 ? w & 0xffff : w >> 16);
  }
  static __device__ __forceinline__ float offset(Words, uint32_t) { return 0; }
};

// GGUF's K types: s = d sc, z = -dmin m, with fp16 (d, dmin) of a row in all of the segment, int8 sc and uint8 m of a
// group; without offsets d and sc alone. [g][row g, row g + 8], then [group][g][row g, row g + 8]
template <bool Offsets>
struct TwoLevelScales {
  struct Words {
    uint32_t of_rows[2], inner;
  };
  static constexpr bool kOffsets = Offsets;
  static constexpr uint32_t kOfRow = Offsets ? 4 : 2, kOfGroup = Offsets ? 2 : 1;  // bytes
  static constexpr uint32_t kHeader = kTileRows * kOfRow, kGroupBytes = kTileRows * kOfGroup;
  static __host__ __device__ uint32_t row_place(uint32_t row) { return (row % 8 * 2 + row / 8) * kOfRow; }
  static __host__ __device__ uint32_t place(uint32_t row, uint32_t group) {
    return kHeader + group * kGroupBytes + (row % 8 * 2 + row / 8) * kOfGroup;
  }
  template <class Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    const uint32_t at = kHeader + group * kGroupBytes + g * 2 * kOfGroup;
    if constexpr (Offsets) {
      const uint2 rows = m.two_words(g * 8);
      return {{rows.x, rows.y}, m.word(at)};
    } else {
      const uint32_t rows = m.word(g * 4);
      return {{rows & 0xffff, rows >> 16}, m.half_word(at)};
    }
  }
  static __device__ __forceinline__ float scale(const Words& w, uint32_t i) {
    return from_half<__half>(w.of_rows[i] & 0xffff) * (byte(w.inner ^ 0x80808080, kOfGroup * i) - 128);
  }
  static __device__ __forceinline__ float offset(const Words& w, uint32_t i) {
    if constexpr (!Offsets) return 0;
    return -(from_half<__half>(w.of_rows[i] >> 16) * byte(w.inner, kOfGroup * i + 1));
  }

 private:
  // By the bits of 2^23 + byte: conversions of bytes take a slow pipe.
  static __device__ __forceinline__ float byte(uint32_t word, uint32_t i) {
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)) - 8388608.0F;
  }
};

template <class Weights, class ScalesOf, uint32_t Group, uint32_t Blocks>
struct GroupedFormat {
  using Half = __half;
  using Scales = ScalesOf;
  static constexpr int kBias = Weights::kBias;
  static constexpr uint32_t kBlocks = Blocks, kSegmentK = 32 * Blocks, kGroup = Group, kGroups = kSegmentK / Group;
  static constexpr uint32_t kSpread = Group <= kSegmentK / 2 ? 2 : 1, kAcc = 2 * kSpread;
  static constexpr uint32_t kScales = Weights::kBytes * (Blocks / 2);
  static constexpr uint32_t kSegmentBytes = kScales + Scales::kHeader + Scales::kGroupBytes * kGroups;
  static constexpr bool kScaled = true, kTotal = false, kStaggered = Weights::kStaggered;
  static_assert(Blocks % 2 == 0 && kSegmentK % (kSpread * Group) == 0 && Group >= 16 && kSegmentBytes % 16 == 0);

  template <int T, int kTiles, int N, class X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][N][kAcc], const uint32_t (&segment)[kTiles],
                                                  X& x) {
    constexpr bool kSixteens = Group < 32 && !X::kSpreads;
    float c[T][N][4], sum[N];
    const auto multiply_quad = [&](uint32_t quad) {
      if constexpr (kSixteens) {
        multiply_sixteens<T>(acc, segment, x, quad);
      } else {
        multiply_steps<T>(acc, segment, x, quad, c, sum);
      }
    };
    if constexpr (N == 1 && Blocks <= 4) {
#pragma unroll
      for (uint32_t quad = 0; quad < Blocks / 2; ++quad) multiply_quad(quad);
    } else {
#pragma unroll 1  // registers
      for (uint32_t quad = 0; quad < Blocks / 2; ++quad) multiply_quad(quad);
    }
  }
  template <class X>
  static __device__ __forceinline__ void partial(const float (&acc)[kAcc], float& low, float& high) {
    low = acc[0], high = acc[1];
    if constexpr (kSpread == 2) {
      low += X::kSpreads ? __shfl_down_sync(~0U, low, 1) : acc[2];
      high += X::kSpreads ? __shfl_down_sync(~0U, high, 1) : acc[3];
    }
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo& row) {
    return sum / kDenormalStep * row.unscale;
  }

  // q: with the bias; k divisible by 8.
  static __device__ void put(uint8_t* segment, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    Weights::put(segment + k % kSegmentK / 64 * Weights::kBytes, row, k % 64, q);
  }
  // Where a row's scale is for the group that k is in.
  static __host__ __device__ uint32_t scale_offset(uint32_t row, uint32_t k) {
    return kScales + Scales::place(row, k % kSegmentK / Group);
  }
  static __device__ void expand(const uint8_t* segment, uint32_t block, uint32_t lane, float (&v)[2][8]) {
    const auto scales = Scales::load(PlainBytes{segment + kScales}, (32 * block + 8 * (lane % 4)) / Group, lane / 4);
    uint32_t q[2][8];
    Weights::unpack(segment + block / 2 * Weights::kBytes, block % 2, lane, q);
    for (uint32_t i = 0; i < 16; ++i) {
      const float w = static_cast<float>(q[i / 8][i % 8]) - Weights::kBias;
      v[i / 8][i % 8] = fmaf(w, Scales::scale(scales, i / 8), Scales::offset(scales, i / 8));
    }
  }

 private:
  template <int T, int kTiles, int N, class X>
  static __device__ __forceinline__ void multiply_steps(float (&acc)[kTiles][N][kAcc],
                                                        const uint32_t (&segment)[kTiles], X& x, uint32_t quad,
                                                        float (&c)[T][N][4], float (&sum)[N]) {
    // k that are summed before they are scaled; with several groups side by side, lane % 4 is the lane's group.
    constexpr uint32_t kSpan = X::kSpreads ? kSpread * Group : Group;
    const uint32_t own = X::kSpreads ? lane_id() % kSpread : 0;
    Weights weights[T];
#pragma unroll
    for (int t = 0; t < T; ++t) weights[t].load(segment[t] + Weights::kBytes * quad);
#pragma unroll
    for (uint32_t step = 0; step < 4; ++step) {
      const uint32_t k = 64 * quad + 16 * step, group = k / kSpan * (kSpan / Group);
      if (k % kSpan == 0) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
          sum[n] = x.sum(group + own, n);
#pragma unroll
          for (int t = 0; t < T; ++t) c[t][n][0] = c[t][n][1] = c[t][n][2] = c[t][n][3] = 0;
        }
      }
      uint4 f[N];
#pragma unroll
      for (int n = 0; n < N; ++n) f[n] = x.fragment(2 * quad + step / 2, n);
#pragma unroll
      for (int t = 0; t < T; ++t) {
        uint32_t a[4];
        weights[t].fragments(step, a);
#pragma unroll
        for (int n = 0; n < N; ++n) mma_step<Half>(c[t][n], a, f[n], step % 2);
        if ((k + 16) % kSpan != 0) continue;
        const auto scales = Scales::load(SharedBytes{segment[t] + kScales}, group + own, lane_id() / 4);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          scale(acc[t][n], X::kSpreads ? 0 : group % kSpread * 2, c[t][n], sum[n], scales);
        }
      }
    }
  }
  // A group is half of the lanes of two k-steps; the other half of x is zero then.
  template <int T, int kTiles, int N, class X>
  static __device__ __forceinline__ void multiply_sixteens(float (&acc)[kTiles][N][kAcc],
                                                           const uint32_t (&segment)[kTiles], X& x, uint32_t quad) {
    Weights weights[T];
#pragma unroll
    for (int t = 0; t < T; ++t) weights[t].load(segment[t] + Weights::kBytes * quad);
#pragma unroll
    for (uint32_t block = 0; block < 2; ++block) {
      uint32_t a[T][2][4];
#pragma unroll
      for (uint32_t step = 0; step < 2; ++step) {
#pragma unroll
        for (int t = 0; t < T; ++t) weights[t].fragments(2 * block + step, a[t][step]);
      }
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t group = 4 * quad + 2 * block + half;
        const bool own = lane_id() % 4 / 2 == half;
        typename Scales::Words scales[T];
#pragma unroll
        for (int t = 0; t < T; ++t) scales[t] = Scales::load(SharedBytes{segment[t] + kScales}, group, lane_id() / 4);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const float sum = x.sum(group, n);
          uint4 f = x.fragment(2 * quad + block, n);
          if (!own) f = {0, 0, 0, 0};
#pragma unroll
          for (int t = 0; t < T; ++t) {
            float c[4] = {};
            mma_step<Half>(c, a[t][0], f, 0);
            mma_step<Half>(c, a[t][1], f, 1);
            scale(acc[t][n], 2 * half, c, sum, scales[t]);
          }
        }
      }
    }
  }
  // acc[at], of row g, and acc[at + 1] += s c + (z - bias s) X, X the group's sum of x; all in steps of 2^-24.
  static __device__ __forceinline__ void scale(float (&acc)[kAcc], uint32_t at, const float (&c)[4], float sum,
                                               const typename Scales::Words& scales) {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const float s = Scales::scale(scales, row), least = fmaf(-Weights::kBias, s, Scales::offset(scales, row));
      acc[at + row] = fmaf(s, c[2 * row] + c[2 * row + 1], acc[at + row]);
      acc[at + row] = fmaf(least, sum, acc[at + row]);
    }
  }
};

// w = (q - 8) s + z with a bf16 pair (s, z) a group.
template <uint32_t Group, uint32_t Blocks = 4>
using Int4Format = GroupedFormat<Nibbles<8>, ScalePairs<__nv_bfloat16>, Group, Blocks>;

}  // namespace tenon::cuda
