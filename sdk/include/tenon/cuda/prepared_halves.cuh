// This is x as tile_gemm.cuh multiplies it, and the kernel that makes it so: each value one half, each row scaled by a
// power of two that keeps it in range, RMSNorm's weights multiplied in before.
#pragma once

#include <cstdint>

#include "tenon/cuda/half_fragments.cuh"
#include "tenon/cuda/matvec.cuh"

namespace tenon::cuda {
namespace detail {

inline constexpr uint32_t kPreparedK = 64, kLeastPrepareThreads = 256, kMostPrepareThreads = 1024;
inline constexpr uint32_t kPreparedRows = 8;  // a block has so many, where there are many

// x as the product takes it: halves, [band][64 k][8 k][row][8 values], the values in the order of A fragments; then the
// factors that undo the rows' scales.
struct PreparedHalves {
  uint32_t rows, bands, blocks;  // rows of a band; blocks of kPreparedK
  __host__ __device__ uint32_t block_bytes() const { return kPreparedK * rows * 2; }
  __host__ __device__ size_t band_bytes() const { return size_t{blocks} * block_bytes(); }
  __host__ __device__ size_t factors() const { return bands * band_bytes(); }
  __host__ __device__ size_t bytes() const { return factors() + rows * bands * sizeof(float); }
};
template <PackedFormat F>
__host__ __device__ inline uint32_t stages_of(uint32_t k) {
  return (k + kStageK<F> - 1) / kStageK<F>;
}
template <PackedFormat F>
__host__ __device__ inline PreparedHalves prepared_halves(uint32_t k, uint32_t rows, uint32_t bands) {
  return {rows, bands, stages_of<F>(k) * (kStageK<F> / kPreparedK)};
}

}  // namespace detail

// Returns where value k of a row lies in shared memory. The four octets of each 32 values are rotated by one more than
// those of the 32 before, so that the octets that tensor cores take from four blocks lie in different banks.
__device__ __forceinline__ uint32_t turned(uint32_t k) {
  return k / 32 * 32 + (k / 8 + k / 32) % 4 * 8 + k % 8;
}

namespace detail {

// A lane, or several together, have seen this of a row.
struct RowMeasure {
  float square = 0;      // sum of the squares before the norm's weights
  uint32_t largest = 0;  // magnitude's bits, after them

  // v gets the norm's weights, unless that is nullptr.
  __device__ __forceinline__ void add_octet(float (&v)[8], const float* weight) {
    for (uint32_t i = 0; i < 8; ++i) {
      square = fmaf(v[i], v[i], square);
      if (weight != nullptr) v[i] *= weight[i];
      largest = max(largest, __float_as_uint(v[i]) & 0x7fffffff);
    }
  }
  __device__ __forceinline__ void add(const RowMeasure& other) {
    square += other.square;
    largest = max(largest, other.largest);
  }
  __device__ __forceinline__ void add_warp() { *this = {warp_sum(square), __reduce_max_sync(~0U, largest)}; }
};
// A row's halves are its values times scale; factor undoes that, and has the norm's share of the row.
struct RowScale {
  float scale = 1, factor = 1;
};
template <PackedFormat F>
__device__ __forceinline__ RowScale row_scale(const MatvecArgs& a, const float* norm, const RowMeasure& row) {
  RowScale s;
  if constexpr (F::kScaled) {
    // These are the exponent's bits of 2^13 over the largest's power of two.
    const uint32_t bits = min(267 - (row.largest >> 23), 253U);
    s.scale = __uint_as_float(bits << 23);
    s.factor = __uint_as_float((254 - bits) << 23);
  }
  if (norm != nullptr) s.factor *= rsqrtf(row.square / static_cast<float>(a.k) + a.eps);
  return s;
}
// Says whether a row belongs to a band that is not multiplied, since it has no live row.
__device__ __forceinline__ bool is_left_out(const PreparedHalves& to, uint32_t row, uint32_t live) {
  return row >= to.rows && row / to.rows * to.rows >= live;
}
// Loads the values k and k + 1; k is even. Those from n on are 0.
__device__ __forceinline__ float2 load_pair(const float* p, uint32_t k, uint32_t n) {
  if (k + 2 <= n && reinterpret_cast<uintptr_t>(p) % 8 == 0) return *reinterpret_cast<const float2*>(p + k);
  return {k < n ? p[k] : 0, k + 1 < n ? p[k + 1] : 0};
}
// Returns where 16 bytes of a row lie: its octet number `piece`, in the order of A fragments.
__device__ __forceinline__ uint4* prepared_piece(uint8_t* prepared, const PreparedHalves& to, uint32_t row,
                                                 uint32_t piece) {
  return reinterpret_cast<uint4*>(prepared + row / to.rows * to.band_bytes() + size_t{piece / 8} * to.block_bytes() +
                                  (piece % 8 * to.rows + row % to.rows) * 16);
}

}  // namespace detail

// Each block prepares one row. Rows that do not exist become zeros.
//
// The product's blocks begin as soon as there is room for them. They ask for their first weights a few at a
// time, so that x does not wait for all of those.
template <PackedFormat F>
__global__ void __launch_bounds__(detail::kMostPrepareThreads)
    prepare_halves_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ MatvecPointers p,
                          const __grid_constant__ detail::PreparedHalves to) {
  using namespace detail;
  using H = typename F::Half;
  extern __shared__ __align__(128) float values[];
  __shared__ RowMeasure of_warp[kMostPrepareThreads / 32];
  trigger();
  float weight[8];  // these are the norm's weights for the thread's next octet: the first come before the wait
  if (p.norm != nullptr) load_octet(p.norm, 8 * threadIdx.x, a.k, weight);
  wait();
  const uint32_t row = blockIdx.x, all = to.blocks * kPreparedK, live = min(*p.live, a.rows);
  const uint32_t k_there = row < live ? a.k : 0;
  if (is_left_out(to, row, live)) return;
  const float* x = p.x + row * a.x_stride;
  RowMeasure measure;
#pragma unroll 2
  for (uint32_t k = 8 * threadIdx.x; k < all; k += 8 * blockDim.x) {
    float v[8];
    load_octet(x, k, k_there, v);
    if (p.norm != nullptr && k != 8 * threadIdx.x) load_octet(p.norm, k, a.k, weight);
    measure.add_octet(v, p.norm != nullptr ? weight : nullptr);
    if constexpr (F::kScaled) {
      auto* octet = reinterpret_cast<float4*>(values + turned(k));
      octet[0] = {v[0], v[1], v[2], v[3]};
      octet[1] = {v[4], v[5], v[6], v[7]};
    } else {  // an octet has two values of each of four pieces
      for (uint32_t t = 0; t < 4; ++t) {
        reinterpret_cast<uint32_t*>(prepared_piece(p.prepared, to, row, k / 32 * 4 + t))[k / 8 % 4] =
            to_halves<H>(v[2 * t], v[2 * t + 1]);
      }
    }
  }
  measure.add_warp();
  if (lane_id() == 0) of_warp[threadIdx.x / 32] = measure;
  __syncthreads();
  measure = {};
  for (uint32_t w = 0; w < blockDim.x / 32; ++w) measure.add(of_warp[w]);
  const RowScale scale = row_scale<F>(a, p.norm, measure);
  if (threadIdx.x == 0) reinterpret_cast<float*>(p.prepared + to.factors())[row] = scale.factor;
  if constexpr (F::kScaled) {
    // It takes 16 bytes at a time, what a core has of a row: of the two k-steps in 32 k, one's first or second half.
    for (uint32_t piece = threadIdx.x; piece < all / 8; piece += blockDim.x) {
      const float up = F::kStaggered && piece % 2 == 1 ? scale.scale / 16 : scale.scale;
      uint32_t out[4];
      for (uint32_t t = 0; t < 4; ++t) {
        const float2 v = *reinterpret_cast<const float2*>(values + turned(piece / 4 * 32 + 8 * t + piece % 4 * 2));
        out[t] = to_halves<H>(v.x * up, v.y * up);
      }
      *prepared_piece(p.prepared, to, row, piece) = {out[0], out[1], out[2], out[3]};
    }
  }
}

// Prepares many rows. A block has eight, whose pieces lie side by side, so that it writes a line of 128 bytes at once.
// For that it reads x a second time, after it has measured the rows; bf16 without a norm is not measured.
template <PackedFormat F>
__global__ void __launch_bounds__(detail::kMostPrepareThreads)
    prepare_many_halves_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ MatvecPointers p,
                               const __grid_constant__ detail::PreparedHalves to) {
  using namespace detail;
  using H = typename F::Half;
  constexpr uint32_t kRows = kPreparedRows, kWarps = kMostPrepareThreads / 32, kWarpsOfRow = kWarps / kRows;
  __shared__ RowMeasure of_warp[kRows][kWarpsOfRow];
  wait();
  const uint32_t first_row = blockIdx.x * kRows, warp = threadIdx.x / 32, live = min(*p.live, a.rows);
  if (is_left_out(to, first_row, live)) return;
  const auto there = [&](uint32_t row) { return first_row + row < live ? a.k : 0; };
  const auto row_of_x = [&](uint32_t row) { return p.x + (first_row + row) * a.x_stride; };
  if (F::kScaled || p.norm != nullptr) {
    const uint32_t row = warp % kRows, k_there = there(row);
    RowMeasure measure;
#pragma unroll 2
    for (uint32_t k = 8 * (warp / kRows * 32 + lane_id()); k < k_there; k += 8 * 32 * kWarpsOfRow) {
      float v[8];
      load_octet(row_of_x(row), k, k_there, v);
      float weight[8];
      if (p.norm != nullptr) load_octet(p.norm, k, k_there, weight);
      measure.add_octet(v, p.norm != nullptr ? weight : nullptr);
    }
    measure.add_warp();
    if (lane_id() == 0) of_warp[row][warp / kRows] = measure;
    __syncthreads();
  }
  // This is a lane's row, and which of the four pieces of 32 k it makes.
  const uint32_t row = lane_id() % kRows, quarter = lane_id() / kRows, k_there = there(row);
  RowMeasure measure;
  if (F::kScaled || p.norm != nullptr) {
    for (uint32_t w = 0; w < kWarpsOfRow; ++w) measure.add(of_warp[row][w]);
  }
  const RowScale scale = row_scale<F>(a, p.norm, measure);
  const float up = F::kStaggered && quarter % 2 == 1 ? scale.scale / 16 : scale.scale;
  const float* x = row_of_x(row);
#pragma unroll 2
  for (uint32_t group = warp; group < to.blocks * kPreparedK / 32; group += kWarps) {
    uint32_t out[4];
#pragma unroll
    for (uint32_t t = 0; t < 4; ++t) {
      const uint32_t k = group * 32 + 8 * t + 2 * quarter;
      float2 v = load_pair(x, k, k_there);
      if (p.norm != nullptr) {
        const float2 weight = load_pair(p.norm, k, k_there);
        v.x *= weight.x;
        v.y *= weight.y;
      }
      out[t] = to_halves<H>(v.x * up, v.y * up);
    }
    *prepared_piece(p.prepared, to, first_row + row, group * 4 + quarter) = {out[0], out[1], out[2], out[3]};
  }
  if (warp == 0 && quarter == 0) {
    reinterpret_cast<float*>(p.prepared + to.factors())[first_row + row] = scale.factor;
  }
}

}  // namespace tenon::cuda
