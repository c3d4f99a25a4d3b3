// Rows of int8 weights are packed (tenon/cuda/packed.cuh) and multiplied by rows of x in int8 on tensor cores, by the
// kernels of tenon/cuda/matvec.cuh: sums of integers are exact in each warp, then each warp's sum is rounded to f32 and
// multiplied by the scale of x. A warp has a sixteenth of k.
//
//   c (rows 16, columns 8) += a (rows 16, k 32) b (k 32, columns 8), int8 with int32 sums (mma_int8 of
//   tenon/cuda/mma.cuh, which says what lane l = 4 g + t holds of a, b and c)
//
// Products do not care which k is called which, so k are permuted as packed.cuh has it: a lane holds k = 8t to 8t + 7
// of 32, in natural order, and reads 16 bytes of weights and 8 bytes of x for them.
//
// A row of x takes four bytes a k, as one in f32 would: of each segment of 64 k the int8 are the first 64 of its 256
// bytes, so that the row can take the place of its floats. Column c of b is row c % 4 of a row block; the columns from
// 4 on are there twice and are not read. The naive twin is the loop in int64 of tests/conformance/int8_rows_test.cc.
#pragma once

#include <cstdint>

#include "definition.h"
#include "tenon/cuda/mma.cuh"
#include "tenon/cuda/row_prologue.cuh"

namespace tenon::cuda {

// A segment of 64 k lies so: [32 k][lane][k-step][4 bytes of row g, 4 bytes of row g + 8].
template <int8_rows::Int8Rows SchemaOf>
struct IntegerFormat {
  using Half = void;  // x stays what it is, in natural order
  using Schema = SchemaOf;
  static constexpr uint32_t kBlocks = 2, kSegmentK = 64, kSegmentBytes = 1024, kAcc = 4, kGroup = 0, kSpread = 1;
  static constexpr bool kScaled = false, kTotal = false, kRowScales = true, kStaggered = false;
  static constexpr uint32_t kTableBytes = 128;  // find_largest() uses them; a dynamic array may begin after them

  // acc holds the bits of int32.
  template <int kPresent, int kTiles, int kRowBlocks, PreparedX X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][kRowBlocks][kAcc],
                                                  const uint32_t (&segment)[kTiles], X& x) {
    const uint32_t lane = lane_id();
#pragma unroll
    for (uint32_t b = 0; b < kBlocks; ++b) {
      uint4 w[kPresent];  // by tile
#pragma unroll
      for (int t = 0; t < kPresent; ++t) w[t] = load_shared(segment[t] + 512 * b + 16 * lane);
#pragma unroll
      for (int n = 0; n < kRowBlocks; ++n) {
        const int row = X::kRows == 1 ? 0 : 4 * n + static_cast<int>(lane / 4 % 4);
        const auto eight = __builtin_bit_cast(uint2, x.pair(row, 8 * b + 2 * (lane % 4)));
#pragma unroll
        for (int t = 0; t < kPresent; ++t) mma_int8(acc[t][n], w[t], eight);
      }
    }
  }
  // Column t of a row of c is in lane 4 g + t / 2.
  template <PreparedX X>
  static __device__ __forceinline__ RowPair partial(const float (&acc)[kAcc]) {
    if constexpr (X::kRows == 1) return {number(acc[0]), number(acc[2])};
    const uint32_t lane = lane_id(), from = lane / 4 * 4 + lane % 4 / 2;
    float of[kAcc];
#pragma unroll
    for (uint32_t i = 0; i < kAcc; ++i) of[i] = __shfl_sync(~0U, acc[i], static_cast<int>(from));
    return {number(lane % 2 == 0 ? of[0] : of[1]), number(lane % 2 == 0 ? of[2] : of[3])};
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo& row) { return sum * row.unscale; }

  // Returns the offset in a segment of the weights k..k+3 of a row; k is divisible by 4.
  static __host__ __device__ uint32_t quad_offset(uint32_t row, uint32_t k) {
    return k % kSegmentK / 32 * 512 + lane_offset(row, k) + k % 8 / 4 * 8 + row / 8 * 4;
  }
  static __device__ void put(uint8_t* quad, const int (&q)[4]) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= (static_cast<uint32_t>(q[i]) & 255) << 8 * i;
    *reinterpret_cast<uint32_t*>(quad) = word;
  }
  static __device__ void expand(const uint8_t* segment, uint32_t block, uint32_t lane, float (&weights)[2][8]) {
    for (uint32_t i = 0; i < 16; ++i) {
      const auto q = static_cast<int8_t>(segment[block * 512 + lane * 16 + i]);
      weights[i / 4 % 2][i / 8 * 4 + i % 4] = static_cast<float>(q);
    }
  }

 private:
  static __device__ __forceinline__ float number(float bits) { return static_cast<float>(__float_as_int(bits)); }
};

template <class F>
concept IntegerRows = PackedFormat<F> && requires { typename F::Schema; };

namespace detail {

// Returns the greatest of all warps' `bits`, in every thread of the block.
__device__ __forceinline__ uint32_t find_largest(uint32_t bits, uint32_t warp) {
  __shared__ uint32_t of_warp[kMatvecWarps];
  bits = __reduce_max_sync(~0U, bits);
  if (lane_id() == 0) of_warp[warp] = bits;
  __syncthreads();
  for (const uint32_t other : of_warp) bits = max(bits, other);
  return bits;
}

// Returns four numbers of x as bytes. The scale comes from their row's largest, so none is beyond 127. A sum with 1.5 *
// 2^23 ends in the rounded number, in two's complement, and conversions of floats take a slow pipe.
template <int8_rows::Int8Rows Schema>
__device__ __forceinline__ uint32_t four_codes(const float (&v)[4], float inverse) {
  constexpr float kWhole = 12582912;
  uint32_t bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float kept = v[i];
    if constexpr (Schema::kOutlier < int8_rows::kNoOutliers) kept = int8_rows::is_outlier<Schema>(kept) ? 0 : kept;
    bits[i] = __float_as_uint(__fadd_rn(__fmul_rn(kept, inverse), kWhole));
  }
  return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
}

// Returns the scale of a row whose largest magnitude has these bits; it is no less than `least`.
template <int8_rows::Int8Rows Schema>
__device__ __forceinline__ float scale_of(uint32_t largest, float least) {
  constexpr uint32_t kInfinite = 0x7f800000;
  if (largest >= kInfinite) return __int_as_float(0x7fffffff);
  return fmaxf(__uint_as_float(largest) / Schema::kXSteps, least);
}

}  // namespace detail

// All threads of the block call it, each warp with its share; the scale is the row's, which
// every warp has to know before it rounds.
template <IntegerRows F, RowSink Sink>
__device__ ShareSums prepare_share(const RowSource& s, uint32_t warp, uint8_t* memory, const Sink& sink) {
  using Schema = typename F::Schema;
  const OwnOctets<F> own(s.segments, warp);
  ShareSums found;
  uint32_t largest = detail::keep_x(detail::Share<F>{s, own, memory}, found.square);
  if constexpr (Schema::kOutlier < int8_rows::kNoOutliers) {
    largest = 0;
    for (uint32_t i = lane_id(); i < own.count(); i += 32) {
      float v[8];
      detail::get_octet<F>(memory, own[i], v);
      for (const float f : v) {
        const bool out = int8_rows::is_outlier<Schema>(f) && isfinite(f);
        largest = max(largest, out ? 0 : __float_as_uint(f) & 0x7fffffff);
      }
    }
  }
  // A row that is normed has no least scale, since the norm's factor is not known yet.
  const float least = s.norm != nullptr ? 0 : Schema::kLeastXScale;
  found.unscale = detail::scale_of<Schema>(detail::find_largest(largest, warp), least);
  const float inverse = int8_rows::inverse_of<Schema>(found.unscale);
  // Whole warps take part: a segment is 8 lanes, and its int8 lie where floats of other lanes were.
  for (uint32_t begin = 0; begin < own.count(); begin += 32) {
    const uint32_t i = begin + lane_id();
    uint2 codes{};
    if (i < own.count()) {
      float v[8];
      detail::get_octet<F>(memory, own[i], v);
      codes = {detail::four_codes<Schema>({v[0], v[1], v[2], v[3]}, inverse),
               detail::four_codes<Schema>({v[4], v[5], v[6], v[7]}, inverse)};
    }
    __syncwarp();
    if (i < own.count()) sink.put_codes(own[i], codes);
  }
  __syncwarp();
  return found;
}

}  // namespace tenon::cuda
