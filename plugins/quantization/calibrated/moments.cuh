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
  uint32_t experts;  // 0 if the site is not routed
  int64_t x_stride;  // floats
};
struct MomentsOperand {
  enum : uint32_t { kState, kX, kLive, kExpert, kCount };
};

namespace detail {

inline constexpr uint32_t kMomentsTile = 128, kMomentsRows = 16, kMomentsThreads = 256, kOwn = 8;

// This is what an op reads.
struct MomentsX {
  const float* x;         // (rows, k)
  const uint32_t* live;   // so many rows are live
  const int32_t* expert;  // (rows); nullptr if the site is not routed
  __device__ bool is_of(uint32_t row, uint32_t which) const {
    return expert == nullptr || expert[row] == static_cast<int32_t>(which);
  }
};

// A block looks at so many rows at a time, and has those of its expert listed in shared memory, in their order.
struct MomentsList {
  uint32_t row[kMomentsThreads], of_warp[kMomentsThreads / 32];
};
// Lists rows from `first` on that are below `live`, and returns how many there are. The whole block calls it.
__device__ inline uint32_t list_rows(const MomentsX& x, uint32_t first, uint32_t live, MomentsList& list) {
  const uint32_t row = first + threadIdx.x, warp = threadIdx.x / 32;
  const bool listed = row < live && x.is_of(row, blockIdx.y);
  const uint32_t of_warp = __ballot_sync(~0u, listed);
  if (threadIdx.x % 32 == 0) list.of_warp[warp] = static_cast<uint32_t>(__popc(of_warp));
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (uint32_t w = 0; w < kMomentsThreads / 32; ++w) {
    before += w < warp ? list.of_warp[w] : 0;
    all += list.of_warp[w];
  }
  if (listed) list.row[before + static_cast<uint32_t>(__popc(of_warp & ((1u << threadIdx.x % 32) - 1)))] = row;
  __syncthreads();
  return all;
}
// These are rows that are listed.
struct MomentsRows {
  const float* x;       // (rows, k)
  const uint32_t* row;  // by number
  uint32_t count;
};
// Copies a tile of their columns, from column `column` on, into shared memory; zeros stand after the last row and after
// the last column.
__device__ inline void copy_columns(const MomentsArgs& a, const MomentsRows& rows, uint32_t column,
                                    float (&to)[kMomentsRows][kMomentsTile]) {
  for (uint32_t at = threadIdx.x; at < kMomentsRows * kMomentsTile; at += kMomentsThreads) {
    const uint32_t r = at / kMomentsTile, c = at % kMomentsTile;
    to[r][c] = r < rows.count && column + c < a.k ? rows.x[rows.row[r] * a.x_stride + column + c] : 0.0F;
  }
}

// A block is a tile of the products x_i x_j on or above the diagonal, of an expert along y. A thread has 8 x 8 of them:
// columns t, t + 16, ... of both sides, so that threads side by side read numbers side by side.
static __global__ void __launch_bounds__(kMomentsThreads)
    products_kernel(const MomentsArgs a, const MomentsX rows, uint8_t* state) {
  __shared__ float of_i[kMomentsRows][kMomentsTile], of_j[kMomentsRows][kMomentsTile];
  __shared__ MomentsList list;
  uint32_t j_tile = 0, i_tile = blockIdx.x;
  while (i_tile > j_tile) i_tile -= ++j_tile;
  const uint32_t i0 = i_tile * kMomentsTile, j0 = j_tile * kMomentsTile;
  const uint32_t of_thread_i = threadIdx.x / 16, of_thread_j = threadIdx.x % 16;
  float sum[kOwn][kOwn] = {};
  cuda::wait();
  const uint32_t live = min(*rows.live, a.rows);
  for (uint32_t first = 0; first < live; first += kMomentsThreads) {
    const uint32_t listed = list_rows(rows, first, live, list);
    for (uint32_t n = 0; n < listed; n += kMomentsRows) {
      const MomentsRows some{rows.x, list.row + n, listed - n};
      copy_columns(a, some, i0, of_i);
      copy_columns(a, some, j0, of_j);
      __syncthreads();
#pragma unroll
      for (uint32_t r = 0; r < kMomentsRows; ++r) {
        float left[kOwn], right[kOwn];
#pragma unroll
        for (uint32_t m = 0; m < kOwn; ++m) {
          left[m] = of_i[r][of_thread_i + 16 * m];
          right[m] = of_j[r][of_thread_j + 16 * m];
        }
#pragma unroll
        for (uint32_t l = 0; l < kOwn; ++l) {
#pragma unroll
          for (uint32_t m = 0; m < kOwn; ++m) sum[l][m] += left[l] * right[m];
        }
      }
      __syncthreads();
    }
  }
  auto* sums = reinterpret_cast<float*>(state + blockIdx.y * moments_bytes(a.k));
#pragma unroll
  for (uint32_t m = 0; m < kOwn; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t i = i0 + of_thread_i + 16 * m, j = j0 + of_thread_j + 16 * n;
      if (i < a.k && j < a.k) sums[size_t{i} * a.k + j] += sum[m][n];
    }
  }
}

// A thread is a column, of an expert along y; the one after the last counts rows.
static __global__ void magnitudes_kernel(const MomentsArgs a, const MomentsX rows, uint8_t* state) {
  const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
  cuda::wait();
  const uint32_t live = min(*rows.live, a.rows);
  if (column > a.k) return;
  double sum = 0;
  for (uint32_t r = 0; r < live; ++r) {
    if (rows.is_of(r, blockIdx.y)) sum += column == a.k ? 1.0F : fabsf(rows.x[r * a.x_stride + column]);
  }
  reinterpret_cast<double*>(state + blockIdx.y * moments_bytes(a.k) + magnitudes_offset(a.k))[column] += sum;
}

inline void add_moments(const MomentsArgs& a, const cuda::Launch& launch) {
  const MomentsX rows{launch.ptr<const float>(MomentsOperand::kX), launch.ptr<const uint32_t>(MomentsOperand::kLive),
                      a.experts != 0 ? launch.ptr<const int32_t>(MomentsOperand::kExpert) : nullptr};
  auto* state = launch.ptr<uint8_t>(MomentsOperand::kState);
  const uint32_t tiles = (a.k + kMomentsTile - 1) / kMomentsTile, sets = std::max(a.experts, 1U);
  launch(&products_kernel, {.blocks = {tiles * (tiles + 1) / 2, sets}, .threads = {kMomentsThreads}}, a, rows, state);
  launch(&magnitudes_kernel, {.blocks = {a.k / kMomentsThreads + 1, sets}, .threads = {kMomentsThreads}}, a, rows,
         state);
}

}  // namespace detail

struct ObservesMomentsOnGpu {
  uint64_t observed_bytes(const tenon_linear& s) const { return moments_bytes(static_cast<uint64_t>(s.in_dim)); }
  // Records an op that adds to the moments of a site or, if it is routed, to those of each row's expert.
  void observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const {
    const tenon_tensor x = rec.describe(call.x);
    const auto k = static_cast<uint32_t>(s.in_dim);
    const tenon_tid live = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
    const std::vector<tenon_operand> operands = sdk::operands_by(
        MomentsOperand::kCount, {{MomentsOperand::kState, call.state, TENON_READ | TENON_WRITE},
                                 {MomentsOperand::kX, call.x, TENON_READ},
                                 {MomentsOperand::kLive, live, TENON_READ},
                                 {MomentsOperand::kExpert, s.experts != 0 ? call.expert : call.x, TENON_READ}});
    sdk::OpSpec spec{.name = "add_moments", .operands = operands, .chunks = {}};
    spec.cost.read[sdk::kFixedCost] = spec.cost.written[sdk::kFixedCost] =
        double{sizeof(float)} / 2 * k * k * std::max(s.experts, 1U);
    spec.cost.read[sdk::kCostPerRow] = double{sizeof(float)} * k;
    spec.cost.flops[sdk::kCostPerRow] = static_cast<double>(k) * k;
    cuda::emit<&detail::add_moments>(
        rec, spec,
        MomentsArgs{k, static_cast<uint32_t>(x.dim[0]), s.experts, x.stride[0] / static_cast<int64_t>(sizeof(float))});
  }
};

}  // namespace tenon::calibrated
