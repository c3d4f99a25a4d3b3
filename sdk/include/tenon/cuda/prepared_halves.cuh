// This is x as tile_gemm.cuh multiplies it, and the kernel that makes it so: each value one half, each row scaled by a power of two
// that keeps it in range, RMSNorm's weights multiplied in before.
#pragma once

#include <cstdint>

#include "tenon/cuda/half_fragments.cuh"
#include "tenon/cuda/matvec.cuh"

namespace tenon::cuda {
namespace detail {

inline constexpr uint32_t kPreparedK = 64, kMostPrepareThreads = 1024;

// x as the product takes it: halves, [part][64 k][8 k][row][8 values], the values in the order of A fragments; then the
// factors that undo the rows' scales.
struct PreparedHalves {
  uint32_t rows, parts, blocks;  // rows of a part; blocks of kPreparedK
  __host__ __device__ uint32_t block_bytes() const { return kPreparedK * rows * 2; }
  __host__ __device__ size_t part_bytes() const { return size_t{blocks} * block_bytes(); }
  __host__ __device__ size_t factors() const { return parts * part_bytes(); }
  __host__ __device__ size_t bytes() const { return factors() + rows * parts * sizeof(float); }
};
template <class F>
__host__ __device__ inline uint32_t stages_of(uint32_t k) {
  return (k + kStageK<F> - 1) / kStageK<F>;
}
template <class F>
__host__ __device__ inline PreparedHalves prepared_halves(uint32_t k, uint32_t rows, uint32_t parts) {
  return {rows, parts, stages_of<F>(k) * (kStageK<F> / kPreparedK)};
}

}  // namespace detail

// Where value k of a row lies in shared memory: of each 32 the octets are turned, so that what a core takes of four
// blocks lies in different banks.
__device__ __forceinline__ uint32_t turned(uint32_t k) {
  return k / 32 * 32 + (k / 8 + k / 32) % 4 * 8 + k % 8;
}

// A block a row. Rows that there are not become zeros.
template <class F>
__global__ void __launch_bounds__(detail::kMostPrepareThreads)
    prepare_halves_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ MatvecPointers p,
                          const __grid_constant__ detail::PreparedHalves to) {
  using namespace detail;
  using H = typename F::Half;
  constexpr uint32_t kWarps = kMostPrepareThreads / 32;
  extern __shared__ __align__(128) float values[];
  __shared__ float squares[kWarps];
  __shared__ uint32_t greatest[kWarps];
  wait();
  const uint32_t row = blockIdx.x, all = to.blocks * kPreparedK;
  const uint32_t k_there = row < min(*p.live, a.rows) ? a.k : 0;
  const float* x = p.x + row * a.x_stride;
  float square = 0;
  uint32_t largest = 0;  // magnitude's bits
#pragma unroll 2
  for (uint32_t k = 8 * threadIdx.x; k < all; k += 8 * blockDim.x) {
    float v[8], norm[8];
    load_octet(x, k, k_there, v);
    if (p.norm != nullptr) load_octet(p.norm, k, k_there, norm);
    for (uint32_t i = 0; i < 8; ++i) {
      square = fmaf(v[i], v[i], square);
      if (p.norm != nullptr) v[i] *= norm[i];
      largest = max(largest, __float_as_uint(v[i]) & 0x7fffffff);
    }
    auto* octet = reinterpret_cast<float4*>(values + turned(k));
    octet[0] = {v[0], v[1], v[2], v[3]};
    octet[1] = {v[4], v[5], v[6], v[7]};
  }
  square = warp_sum(square);
  largest = __reduce_max_sync(~0U, largest);
  if (lane_id() == 0) {
    squares[threadIdx.x / 32] = square;
    greatest[threadIdx.x / 32] = largest;
  }
  __syncthreads();
  square = 0;
  for (uint32_t w = 0; w < blockDim.x / 32; ++w) {
    square += squares[w];
    largest = max(largest, greatest[w]);
  }
  float scale = 1, factor = 1;
  if constexpr (F::kScaled) {
    // The exponent's bits of 2^13 over the largest's power of two.
    const uint32_t bits = min(267 - (largest >> 23), 253U);
    scale = __uint_as_float(bits << 23);
    factor = __uint_as_float((254 - bits) << 23);
  }
  if (p.norm != nullptr) factor *= rsqrtf(square / static_cast<float>(a.k) + a.eps);

  // 16 bytes at a time, what a core has of a row: of the two k-steps in 32 k, one's first or second half.
  for (uint32_t piece = threadIdx.x; piece < all / 8; piece += blockDim.x) {
    const float up = F::kStaggered && piece % 2 == 1 ? scale / 16 : scale;
    uint32_t out[4];
    for (uint32_t t = 0; t < 4; ++t) {
      const float2 v = *reinterpret_cast<const float2*>(values + turned(piece / 4 * 32 + 8 * t + piece % 4 * 2));
      out[t] = to_halves<H>(v.x * up, v.y * up);
    }
    auto* at = p.prepared + row / to.rows * to.part_bytes() + size_t{piece / 8} * to.block_bytes() +
               (piece % 8 * to.rows + row % to.rows) * 16;
    *reinterpret_cast<uint4*>(at) = {out[0], out[1], out[2], out[3]};
  }
  if (threadIdx.x == 0) reinterpret_cast<float*>(p.prepared + to.factors())[row] = factor;
}

}  // namespace tenon::cuda
