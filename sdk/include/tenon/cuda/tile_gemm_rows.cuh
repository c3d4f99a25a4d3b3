// A product of tile_gemm.cuh or cluster_gemm.cuh knows these numbers of rows: those of x's rows that scale its sums, and those of the rows
// that it leaves for a norm.
#pragma once

#include <type_traits>

#include "tenon/cuda/tile_gemm_block.cuh"

namespace tenon::cuda::detail {

// This finds the numbers of a band's rows, which all that multiply share.
template <class Block>
class NumbersOfRows {
  using F = typename Block::Format;
  static constexpr int N = Block::kRows;
  static constexpr uint32_t kOctetOfSumsColumns = sdk::octet_of_sums_columns(N);

 public:
  __device__ __forceinline__ NumbersOfRows(const Block& b, RowNumbers<N>& to) : b_(b), to_(to) {}

  // It is called after the wait. What find() looks at is in the first-level cache then.
  __device__ __forceinline__ void prefetch() const {
    if constexpr (RowNumbers<N>::kForNorms) {
      const uint32_t row = threadIdx.x;
      if (row >= N || row >= b_.a.rows) return;
      if (b_.a.x_normed != 0) prefetch_sums(row);
      if (!scales_normed()) return;
      for (uint32_t which = 0; which < 2; ++which) {
        prefetch(sample(row, which));
        prefetch(b_.p.normed_weights + sampled_column(which));
      }
    }
  }
  // Each thread finds those of a row, of which so many are live.
  __device__ __forceinline__ void find(uint32_t live) const {
    const uint32_t there = min(static_cast<uint32_t>(N), live), row = threadIdx.x;
    if (row < there) to_.factor[row] = factor_of(row);
    if constexpr (RowNumbers<N>::kForNorms) {
      static_assert(2 * N <= TileGemmShape<N>::kMultiplying);
      const uint32_t scaled = row - N;  // other threads find the scales
      if (scales_normed() && scaled < N) {
        to_.scale[scaled] = scaled < there ? static_cast<uint16_t>((127 + power_of(scaled)) << 7) : 0;
      }
    }
  }
  // Returns what a row is multiplied by that is left for a norm.
  __device__ __forceinline__ float scale(uint32_t row) const {
    return std::is_same_v<typename F::Half, __half> ? __uint_as_float(static_cast<uint32_t>(to_.scale[row]) << 16) : 1;
  }

 private:
  __device__ __forceinline__ bool scales_normed() const {
    return std::is_same_v<typename F::Half, __half> && b_.a.normed != Tiled::kNo;  // bf16 has the range of f32
  }
  __device__ __forceinline__ float factor_of(uint32_t row) const {
    if constexpr (RowNumbers<N>::kForNorms) {
      if (b_.a.x_normed != 0) return normed_factor(row);
    }
    if (b_.a.x_tiled != 0) return 1;
    return reinterpret_cast<const float*>(b_.p.prepared + b_.halves.factors())[b_.band * N + row];
  }
  // The product before has left the sums of the rows' squares: four in each of so many pieces of a row, and one more.
  __device__ __forceinline__ const float4* sums_of(uint32_t row, uint32_t piece) const {
    const uint8_t* band = b_.p.prepared + b_.band * x_band_bytes(b_) + b_.halves.band_bytes();
    return reinterpret_cast<const float4*>(band) + piece * b_.halves.rows + row;
  }
  static __device__ __forceinline__ void prefetch(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }
  __device__ __forceinline__ void prefetch_sums(uint32_t row) const {
    for (uint32_t piece = 0; piece <= b_.a.k / kOctetOfSumsColumns; ++piece) prefetch(sums_of(row, piece));
  }
  __device__ __forceinline__ float normed_factor(uint32_t row) const {
    const uint32_t pieces = b_.a.k / kOctetOfSumsColumns;
    const float unscaled = sums_of(row, pieces)->x;
    float square = 0;
#pragma unroll 4
    for (uint32_t piece = 0; piece < pieces; ++piece) {
      const float4 four = *sums_of(row, piece);
      square += (four.x + four.y) + (four.z + four.w);
    }
    return unscaled * rsqrtf(square / static_cast<float>(b_.a.k) + b_.a.eps);
  }
  // Returns the power of two that brings the numbers of a row to about 2^-6. That is known before the row is: the
  // addend, which the product changes a little as a rule, has its size, and some of its values tell it. Then an f16 has
  // room for a number four million times as large, and rounds those of a thousandth as it does others.
  __device__ __forceinline__ int32_t power_of(uint32_t row) const {
    constexpr int32_t kTarget = -6, kMost = 100;
    float square = 0;
#pragma unroll
    for (uint32_t i = 0; i < 2 * kSample; i += 4) {
      const float4 v = load_four(sample(row, i / kSample) + i % kSample);
      const float4 w = load_four(b_.p.normed_weights + sampled_column(i / kSample) + i % kSample);
      const float of_four[4] = {v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w};
      for (const float number : of_four) square = fmaf(number, number, square);
    }
    if (square == 0) return 0;
    const int32_t size = static_cast<int32_t>(__float_as_uint(square / (2 * kSample)) >> 23) - 127;
    return min(max(kTarget - size / 2, -kMost), kMost);
  }
  // Returns one of two places of the row's addend at which kSample values are looked at.
  static constexpr uint32_t kSample = 16;
  __device__ __forceinline__ uint32_t sampled_column(uint32_t which) const {
    return (1 + 2 * which) * (b_.a.map.columns / 4) / kSample * kSample;
  }
  __device__ __forceinline__ const float* sample(uint32_t row, uint32_t which) const {
    return b_.p.addend + (b_.band * N + row) * b_.a.addend_stride + sampled_column(which);
  }
  static __device__ __forceinline__ float4 load_four(const float* p) {
    if (reinterpret_cast<uintptr_t>(p) % 16 == 0) return *reinterpret_cast<const float4*>(p);
    return {p[0], p[1], p[2], p[3]};
  }

  const Block& b_;
  RowNumbers<N>& to_;
};

}  // namespace tenon::cuda::detail
