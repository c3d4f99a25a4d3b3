// How weights lie in a segment (packed.cuh) and how a warp multiplies one by x. A format has
//   kSegmentK, kSegmentBytes; kAcc: accumulators a lane keeps for a tile and 4 rows of x
//   Half: what x is split into, value = hi + lo, two columns of the B fragment a row; void: x stays f32
//   kScaled: x is scaled by a power of two first, so that its greatest magnitude is near 2^14
//   kGroup: k that share a scale, for which sums of x are needed (0: none); kTotal: the sum over all of x is
//   kSpread: groups of one row of x that lie side by side in columns of B, so that they are scaled at once
//   kStaggered: of each 4 k the last two are multiplied by 16 times the weight, and x there is 16 times too small
//   multiply<T>(acc, segment, x): acc[t] += segment[t] * x for T tiles, for each block of 8 columns of B (4 rows of x)
//   partial<X>(acc, low, high): of row 4 n + lane % 4 of x, what it adds to rows lane / 4 and lane / 4 + 8 of the tile
//   finish(sum, row): a warp's sum from its partials, but for Int8's scale of the weight row
//   expand(segment, block, lane, v): v[0], v[1] = 8 weights of rows lane / 4 and + 8, from k = 32 block + 8 (lane % 4)
//   quad_offset(row, k): bytes from the segment's begin to where the weights k..k+3 of a row begin; k divisible by 4
// Those here have a scale a row or none; grouped_formats.cuh has those with groups.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tenon/cuda/packed.cuh"
#include "tenon/cuda/ring.cuh"

namespace tenon::cuda {

// What a warp's sums need of its part of a row of x (row_prologue.cuh).
struct RowInfo {
  float unscale;  // undoes kScaled
  float total;    // sum of the scaled part, if kTotal
};

inline constexpr float kDenormalStep = 1.0F / (1 << 24);  // a half with the bits u is u * 2^-24

// Two halves in a register, the first in its lower part; one from the lower 16 bits.
template <class Half>
__device__ __forceinline__ uint32_t to_halves(float first, float second) {
  uint32_t bits;
  if constexpr (std::is_same_v<Half, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  }
  return bits;
}
template <class Half>
__device__ __forceinline__ float from_half(uint32_t bits) {
  if constexpr (std::is_same_v<Half, __half>) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
  } else {
    return __uint_as_float(bits << 16);
  }
}

template <class Half>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<Half, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
// One of the two k-steps that a fragment of x is for.
template <class Half>
__device__ __forceinline__ void mma_step(float (&c)[4], const uint32_t (&a)[4], const uint4& x, int step) {
  step == 0 ? mma<Half>(c, a, x.x, x.y) : mma<Half>(c, a, x.z, x.w);
}

__device__ __forceinline__ uint32_t lane_id() {
  return threadIdx.x % 32;
}
// Of the lane that holds (row, k) of a 32-k block.
__host__ __device__ inline uint32_t lane_offset(uint32_t row, uint32_t k) {
  return (row % 8 * 4 + k % 32 / 8) * 16;
}

// bf16 or fp16. [k-step][lane][a0..a3]
template <class H, uint32_t Blocks = 1>
struct HalfFormat {
  using Half = H;
  static constexpr uint32_t kBlocks = Blocks, kSegmentK = 32 * Blocks, kSegmentBytes = 1024 * Blocks, kAcc = 4,
                            kGroup = 0;
  static constexpr uint32_t kSpread = 1;
  static constexpr bool kScaled = std::is_same_v<H, __half>, kTotal = false, kStaggered = false;

  template <int T, int kTiles, int N, class X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][N][kAcc], const uint32_t (&segment)[kTiles],
                                                  X& x) {
#pragma unroll
    for (uint32_t s = 0; s < 2 * Blocks; ++s) {
#pragma unroll
      for (int t = 0; t < T; ++t) {
        const uint4 w = load_shared(segment[t] + 512 * s + 16 * lane_id());
        const uint32_t a[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int n = 0; n < N; ++n) mma_step<H>(acc[t][n], a, x.fragment(s / 2, n), s % 2);
      }
    }
  }
  template <class X>
  static __device__ __forceinline__ void partial(const float (&acc)[kAcc], float& low, float& high) {
    low = acc[0] + acc[1], high = acc[2] + acc[3];
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo& row) { return sum * row.unscale; }

  static __host__ __device__ uint32_t quad_offset(uint32_t row, uint32_t k) {
    return (k % kSegmentK / 32 * 2 + k % 8 / 4) * 512 + lane_offset(row, k) + row / 8 * 4;  // and 8 bytes on
  }
  static __device__ void put(uint8_t* quad, const float (&w)[4]) {
    reinterpret_cast<uint32_t*>(quad)[0] = to_halves<H>(w[0], w[1]);
    reinterpret_cast<uint32_t*>(quad)[2] = to_halves<H>(w[2], w[3]);
  }
  static __device__ void expand(const uint8_t* segment, uint32_t block, uint32_t lane, float (&v)[2][8]) {
    for (uint32_t s = 0; s < 2; ++s) {
      const uint4 w = *reinterpret_cast<const uint4*>(segment + (2 * block + s) * 512 + lane * 16);
      const uint32_t a[4] = {w.x, w.y, w.z, w.w};
      for (uint32_t i = 0; i < 4; ++i) {  // a0, a2 are of row g, a1, a3 of row g + 8
        v[i % 2][4 * s + i / 2 * 2] = from_half<H>(a[i] & 0xffff);
        v[i % 2][4 * s + i / 2 * 2 + 1] = from_half<H>(a[i] >> 16);
      }
    }
  }
};

// int8, stored as w + 128. [k-step pair][lane][4 bytes row g, 4 bytes row g + 8, for each k-step]. A scale a row lies
// in a store of its own, by packed row. Bytes become the bits of denormal halves, exact and free of a subtraction.
template <uint32_t Blocks = 2>
struct Int8Format {
  using Half = __half;
  static constexpr uint32_t kBlocks = Blocks, kSegmentK = 32 * Blocks, kSegmentBytes = 512 * Blocks, kAcc = 4,
                            kGroup = 0;
  static constexpr uint32_t kSpread = 1;
  static constexpr bool kScaled = true, kTotal = true, kStaggered = false;
  static constexpr float kOffset = 128;

  template <int T, int kTiles, int N, class X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][N][kAcc], const uint32_t (&segment)[kTiles],
                                                  X& x) {
#pragma unroll
    for (uint32_t b = 0; b < Blocks; ++b) {
      uint4 w[T];
#pragma unroll
      for (int t = 0; t < T; ++t) w[t] = load_shared(segment[t] + 512 * b + 16 * lane_id());
#pragma unroll
      for (int i = 0; i < 2 * T; ++i) {
        const int s = i / T, t = i % T;
        const uint32_t low = s == 0 ? w[t].x : w[t].z, high = s == 0 ? w[t].y : w[t].w;
        const uint32_t a[4] = {__byte_perm(low, 0, 0x4140), __byte_perm(high, 0, 0x4140), __byte_perm(low, 0, 0x4342),
                               __byte_perm(high, 0, 0x4342)};
#pragma unroll
        for (int n = 0; n < N; ++n) mma_step<Half>(acc[t][n], a, x.fragment(b, n), s);
      }
    }
  }
  template <class X>
  static __device__ __forceinline__ void partial(const float (&acc)[kAcc], float& low, float& high) {
    low = acc[0] + acc[1], high = acc[2] + acc[3];
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo& row) {
    return (sum / kDenormalStep - kOffset * row.total) * row.unscale;
  }

  static __host__ __device__ uint32_t quad_offset(uint32_t row, uint32_t k) {
    return k % kSegmentK / 32 * 512 + lane_offset(row, k) + k % 8 / 4 * 8 + row / 8 * 4;
  }
  static __device__ void put(uint8_t* quad, const int (&q)[4]) {  // -128..127
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(q[i] + 128) << 8 * i;
    *reinterpret_cast<uint32_t*>(quad) = word;
  }
  static __device__ void expand(const uint8_t* segment, uint32_t block, uint32_t lane, float (&v)[2][8]) {
    for (uint32_t i = 0; i < 16; ++i) {
      v[i / 4 % 2][i / 8 * 4 + i % 4] = static_cast<float>(int{segment[block * 512 + lane * 16 + i]} - 128);
    }
  }
};

// fp32, multiplied in fp32. [8 k][lane][row g: 2 k, row g + 8: 2 k]
struct F32Format {
  using Half = void;
  static constexpr uint32_t kBlocks = 1, kSegmentK = 32, kSegmentBytes = 2048, kAcc = 8, kGroup = 0;
  static constexpr uint32_t kSpread = 1;
  static constexpr bool kScaled = false, kTotal = false, kStaggered = false;

  template <int T, int kTiles, int N, class X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][N][kAcc], const uint32_t (&segment)[kTiles],
                                                  X& x) {
#pragma unroll
    for (int t = 0; t < T; ++t) multiply_tile(acc[t], segment[t], x);
  }
  template <int N, class X>
  static __device__ __forceinline__ void multiply_tile(float (&acc)[N][kAcc], uint32_t segment, X& x) {
#pragma unroll 1  // registers
    for (uint32_t o = 0; o < 4; ++o) {
      const uint4 w = load_shared(segment + 512 * o + 16 * lane_id());
#pragma unroll
      for (int r = 0; r < 4 * N && r < X::kRows; ++r) {
        const float2 v = x.pair(r, 8 * o + 2 * (lane_id() % 4));
        float(&to)[kAcc] = acc[r / 4];
        to[r % 4 * 2] = fmaf(__uint_as_float(w.y), v.y, fmaf(__uint_as_float(w.x), v.x, to[r % 4 * 2]));
        to[r % 4 * 2 + 1] = fmaf(__uint_as_float(w.w), v.y, fmaf(__uint_as_float(w.z), v.x, to[r % 4 * 2 + 1]));
      }
    }
  }
  template <class X>
  static __device__ __forceinline__ void partial(const float (&acc)[kAcc], float& low, float& high) {
#pragma unroll
    for (uint32_t i = 0; i < kAcc; ++i) {
      float v = acc[i];
      v += __shfl_xor_sync(~0U, v, 1);
      v += __shfl_xor_sync(~0U, v, 2);
      if (i / 2 == lane_id() % 4) (i % 2 == 0 ? low : high) = v;
    }
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo&) { return sum; }

  static __host__ __device__ uint32_t quad_offset(uint32_t row, uint32_t k) {
    return k % kSegmentK / 8 * 512 + (row % 8 * 4 + k % 8 / 2) * 16 + row / 8 * 8;  // and 16 bytes on
  }
  static __device__ void put(uint8_t* quad, const float (&w)[4]) {
    *reinterpret_cast<float2*>(quad) = {w[0], w[1]};
    *reinterpret_cast<float2*>(quad + 16) = {w[2], w[3]};
  }
  static __device__ void expand(const uint8_t* segment, uint32_t, uint32_t lane, float (&v)[2][8]) {
    for (uint32_t j = 0; j < 4; ++j) {
      const auto w = *reinterpret_cast<const float4*>(segment + lane % 4 * 512 + (lane / 4 * 4 + j) * 16);
      v[0][2 * j] = w.x, v[0][2 * j + 1] = w.y, v[1][2 * j] = w.z, v[1][2 * j + 1] = w.w;
    }
  }
};

}  // namespace tenon::cuda
