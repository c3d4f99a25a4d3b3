// Schemes that calibrate by the moments of x (moments.h) observe them so on a GPU, in f32.
#pragma once

#include <algorithm>

#include "moments.h"
#include "tenon/abi/quantization.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"

namespace tenon::calibrated {

struct MomentsArgs {
  uint32_t k, rows;
  int64_t x_stride;  // floats
};
struct MomentsOperand {
  enum : uint32_t { kState, kX, kLive };
};

namespace detail {

inline constexpr uint32_t kMomentsTile = 128, kMomentsRows = 16, kMomentsThreads = 256, kOwn = 8;

// These are the rows of x, of which kMomentsRows are staged.
struct MomentsX {
  const float* x;  // (rows, k)
  uint32_t live;   // so many rows are live
  uint32_t row;    // the first of those that are staged
};
// Stages a tile of columns, from column `first` on; zeros stand after the live rows and after the last column.
__device__ inline void stage_columns(const MomentsArgs& a, const MomentsX& rows, uint32_t first,
                                     float (&to)[kMomentsRows][kMomentsTile]) {
  const auto [x, live, row] = rows;
  for (uint32_t at = threadIdx.x; at < kMomentsRows * kMomentsTile; at += kMomentsThreads) {
    const uint32_t r = at / kMomentsTile, c = at % kMomentsTile;
    const bool there = row + r < live && first + c < a.k;
    to[r][c] = there ? x[(row + r) * a.x_stride + first + c] : 0.0F;
  }
}

// A block is a tile of the products x_i x_j on or above the diagonal. A thread has 8 x 8 of them: columns t, t + 16,
// ... of both sides, so that threads side by side read numbers side by side.
static __global__ void __launch_bounds__(kMomentsThreads)
    products_kernel(const MomentsArgs a, const float* x, const uint32_t* live_rows, float* sums) {
  __shared__ float of_i[kMomentsRows][kMomentsTile], of_j[kMomentsRows][kMomentsTile];
  uint32_t j_tile = 0, i_tile = blockIdx.x;
  while (i_tile > j_tile) i_tile -= ++j_tile;
  const uint32_t i0 = i_tile * kMomentsTile, j0 = j_tile * kMomentsTile;
  const uint32_t of_thread_i = threadIdx.x / 16, of_thread_j = threadIdx.x % 16;
  float sum[kOwn][kOwn] = {};
  cuda::wait();
  const uint32_t live = min(*live_rows, a.rows);
  for (uint32_t row = 0; row < live; row += kMomentsRows) {
    stage_columns(a, {x, live, row}, i0, of_i);
    stage_columns(a, {x, live, row}, j0, of_j);
    __syncthreads();
#pragma unroll
    for (uint32_t r = 0; r < kMomentsRows; ++r) {
      float left[kOwn], right[kOwn];
#pragma unroll
      for (uint32_t n = 0; n < kOwn; ++n) {
        left[n] = of_i[r][of_thread_i + 16 * n];
        right[n] = of_j[r][of_thread_j + 16 * n];
      }
#pragma unroll
      for (uint32_t m = 0; m < kOwn; ++m) {
#pragma unroll
        for (uint32_t n = 0; n < kOwn; ++n) sum[m][n] += left[m] * right[n];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (uint32_t m = 0; m < kOwn; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t i = i0 + of_thread_i + 16 * m, j = j0 + of_thread_j + 16 * n;
      if (i < a.k && j < a.k) sums[size_t{i} * a.k + j] += sum[m][n];
    }
  }
}

// A thread is a column; the one after the last counts rows.
static __global__ void magnitudes_kernel(const MomentsArgs a, const float* x, const uint32_t* live_rows, double* sums) {
  const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
  cuda::wait();
  const uint32_t live = min(*live_rows, a.rows);
  if (column > a.k) return;
  double sum = column == a.k ? live : 0;
  for (uint32_t r = 0; column < a.k && r < live; ++r) sum += fabsf(x[r * a.x_stride + column]);
  sums[column] += sum;
}

inline void add_moments(const MomentsArgs& a, const cuda::Launch& launch) {
  const auto* x = launch.ptr<const float>(MomentsOperand::kX);
  const auto* live = launch.ptr<const uint32_t>(MomentsOperand::kLive);
  auto* state = launch.ptr<uint8_t>(MomentsOperand::kState);
  const uint32_t tiles = (a.k + kMomentsTile - 1) / kMomentsTile;
  launch(&products_kernel, {.blocks = {tiles * (tiles + 1) / 2}, .threads = {kMomentsThreads}}, a, x, live,
         reinterpret_cast<float*>(state));
  launch(&magnitudes_kernel, {.blocks = {a.k / kMomentsThreads + 1}, .threads = {kMomentsThreads}}, a, x, live,
         reinterpret_cast<double*>(state + magnitudes_offset(a.k)));
}

}  // namespace detail

struct ObservesMomentsOnGpu {
  // A site that is routed has no state.
  uint64_t observed_bytes(const tenon_linear& s) const {
    return s.experts != 0 ? 0 : moments_bytes(static_cast<uint64_t>(s.in_dim));
  }
  // Records an op that adds to the moments of a site, which is not routed.
  void observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const {
    const tenon_tensor x = rec.describe(call.x);
    const auto k = static_cast<uint32_t>(s.in_dim);
    const tenon_tid live = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
    const tenon_operand operands[] = {{call.state, TENON_READ | TENON_WRITE}, {call.x, TENON_READ}, {live, TENON_READ}};
    sdk::OpSpec spec{.name = "add_moments", .operands = operands, .chunks = {}};
    spec.cost.read[sdk::kFixedCost] = spec.cost.written[sdk::kFixedCost] = double{sizeof(float)} / 2 * k * k;
    spec.cost.read[sdk::kCostPerRow] = double{sizeof(float)} * k;
    spec.cost.flops[sdk::kCostPerRow] = static_cast<double>(k) * k;
    cuda::emit<&detail::add_moments>(
        rec, spec, MomentsArgs{k, static_cast<uint32_t>(x.dim[0]), x.stride[0] / static_cast<int64_t>(sizeof(float))});
  }
};

}  // namespace tenon::calibrated
