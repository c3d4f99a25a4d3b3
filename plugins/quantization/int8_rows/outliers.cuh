// These are the ops of outliers.h on a GPU, where each kernel that needs to know decides on outliers by itself.
// cuda_scheme.cuh comes before this.
#pragma once

#include "outliers.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::int8_rows {
namespace detail {

inline constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;
inline constexpr uint32_t kEach = 8, kAtOnce = kEach * kThreads;  // a thread and a block look at so many numbers

struct OutlierArgs {
  cuda::TileMap map;
  uint32_t k, rows;
  float threshold;
  uint32_t reserved;
  int64_t x_stride, y_stride;  // floats
};
struct OutlierOperand {
  enum : uint32_t { kY, kX, kLive, kWeights, kScales, kCount };
};
struct OutlierPointers {
  float* y;
  const float* x;
  const uint32_t* live;
  const uint8_t* weights;
  const float* scales;
};

// y[r][c] += scale[c] * (sum of fp16(x[r][i]) * q[c][i] over outliers i). A thread has a column of y, and a block has
// kThreads columns of one row. The block finds the outliers among kAtOnce numbers of x at a time, and lays them side by
// side in their order, so that a sum does not depend on how many columns there are.
template <class F>
__global__ void __launch_bounds__(kThreads) outliers_kernel(const OutlierArgs a, const OutlierPointers p) {
  __shared__ float value[kAtOnce];
  __shared__ uint32_t index[kAtOnce], of_warps[kEach * kWarps];  // [turn][warp]: outliers that it found
  cuda::wait();
  const uint32_t row = blockIdx.y, column = blockIdx.x * kThreads + threadIdx.x;
  if (row >= *p.live) return;
  const bool there = column < a.map.columns;
  const uint32_t packed_row = there ? a.map.packed_row(column) : 0;
  const float* x = p.x + row * a.x_stride;
  const uint32_t warp = threadIdx.x / 32, before = (1U << cuda::lane_id()) - 1;  // it has the lanes before this one
  float sum = 0;
  bool any = false;
  for (uint32_t begin = 0; begin < a.k; begin += kAtOnce) {
    float v[kEach];
    uint32_t in_warp[kEach], found = 0;  // there is one by turn, each of kThreads numbers
#pragma unroll
    for (uint32_t turn = 0; turn < kEach; ++turn) {
      const uint32_t i = begin + turn * kThreads + threadIdx.x;
      v[turn] = i < a.k ? x[i] : 0;
    }
#pragma unroll
    for (uint32_t turn = 0; turn < kEach; ++turn) {
      in_warp[turn] = __ballot_sync(~0U, is_at_least(a.threshold, v[turn]));
      found |= in_warp[turn];
    }
    if (__syncthreads_or(found != 0 ? 1 : 0) == 0) continue;  // it waits, too, until the columns found before are read
    if (cuda::lane_id() < kEach) {
#pragma unroll
      for (uint32_t turn = 0; turn < kEach; ++turn) {
        if (cuda::lane_id() == turn) of_warps[turn * kWarps + warp] = __popc(in_warp[turn]);
      }
    }
    __syncthreads();
    uint32_t at = 0;  // so many outliers come before those of the warp in this turn
#pragma unroll
    for (uint32_t turn = 0, w = 0; turn < kEach; ++turn) {
      for (; w < turn * kWarps + warp; ++w) at += of_warps[w];
      if (is_at_least(a.threshold, v[turn])) {
        const uint32_t to = at + __popc(in_warp[turn] & before);
        value[to] = __half2float(__float2half_rn(v[turn]));
        index[to] = begin + turn * kThreads + threadIdx.x;
      }
    }
    uint32_t count = 0;
    for (const uint32_t of_warp : of_warps) count += of_warp;
    __syncthreads();
    any = true;
    for (uint32_t n = 0; n < count && there; ++n) {
      const uint32_t k = index[n];
      const uint8_t* quad = p.weights + cuda::segment_offset<F>(a.k, packed_row, k) +
                            F::quad_offset(packed_row % cuda::kTileRows, k / 4 * 4);
      sum = fmaf(value[n], static_cast<float>(static_cast<int8_t>(quad[k % 4])), sum);
    }
  }
  if (any && there) p.y[row * a.y_stride + column] += sum * p.scales[packed_row];
}

template <class F>
void run_outliers(const OutlierArgs& a, const cuda::Launch& l) {
  using Operand = OutlierOperand;
  const OutlierPointers p{l.ptr<float>(Operand::kY), l.ptr<const float>(Operand::kX),
                          l.ptr<const uint32_t>(Operand::kLive), l.ptr<const uint8_t>(Operand::kWeights),
                          l.ptr<const float>(Operand::kScales)};
  l(&outliers_kernel<F>, {.blocks = {(a.map.columns + kThreads - 1) / kThreads, a.rows}, .threads = {kThreads}}, a, p);
}

// A block takes a row and kAtOnce columns.
static __global__ void __launch_bounds__(kThreads)
    without_outliers_kernel(const WithoutOutliersArgs a, const float* x, const uint32_t* live, float* to) {
  const uint32_t row = blockIdx.x, begin = blockIdx.y * kAtOnce, end = min(begin + kAtOnce, a.k);
  cuda::wait();
  if (row >= *live) return;
  for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
    to[size_t{row} * a.k + i] = without_outlier(a.threshold, x[row * a.x_stride + i]);
  }
}
inline void run_without_outliers(const WithoutOutliersArgs& a, const cuda::Launch& l) {
  using Operand = WithoutOutliersOperand;
  l(&without_outliers_kernel, {.blocks = {a.rows, (a.k + kAtOnce - 1) / kAtOnce}, .threads = {kThreads}}, a,
    l.ptr<const float>(Operand::kX), l.ptr<const uint32_t>(Operand::kLive), l.ptr<float>(Operand::kTo));
}

}  // namespace detail

inline tenon_tid record_without_outliers(const cuda::PackedSite& site, float threshold, const tenon_linear_call& call,
                                         sdk::Recorder& rec) {
  return record_without_outliers(site.k, threshold, call, rec,
                                 [&](const sdk::OpSpec& spec, const WithoutOutliersArgs& args) {
                                   cuda::emit<&detail::run_without_outliers>(rec, spec, args);
                                 });
}

// F is the site's format, whose quads of codes are bytes.
template <class F>
void record_outliers(const cuda::PackedSite& site, float threshold, const tenon_linear_call& call, sdk::Recorder& rec) {
  using Operand = detail::OutlierOperand;
  const tenon_tensor y = rec.describe(call.y);
  const std::vector<tenon_operand> operands =
      sdk::operands_by(Operand::kCount, {{Operand::kY, call.y, TENON_READ | TENON_WRITE},
                                         {Operand::kX, call.x, TENON_READ},
                                         {Operand::kLive, live_rows_of(call, rec), TENON_READ},
                                         {Operand::kWeights, call.store[0], TENON_READ},
                                         {Operand::kScales, call.store[1], TENON_READ}});
  sdk::OpSpec spec{.name = "outliers", .operands = operands, .chunks = {}};
  spec.cost.read[cuda::kCostPerRow] = 4.0 * site.k;
  const detail::OutlierArgs a{site.map,
                              site.k,
                              static_cast<uint32_t>(y.dim[0]),
                              threshold,
                              0,
                              rec.floats_of_row(call.x),
                              rec.floats_of_row(call.y)};
  cuda::emit<&detail::run_outliers<F>>(rec, spec, a);
}

}  // namespace tenon::int8_rows
