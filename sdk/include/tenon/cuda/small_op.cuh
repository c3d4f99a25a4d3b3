// This makes a small op on CUDA, in one of two forms, over the live rows:
//   record_elements<F>   F::at(op, row, column, x) makes an element of y of a row of x
//   record_rows<Kernel>  a kernel of its own, whose blockIdx.y counts rows
//
//   enum BiasTensor { kBias };  // the op's t
//   struct BiasOf {
//     __device__ static float at(const cuda::RowOp& op, uint32_t, int64_t i, const float* x) { return x[i] + op.t[kBias][i]; }
//   };
//   void Bias::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
//     cuda::record_elements<BiasOf>({.name = "bias"}, op, x, y, r);
//   }
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda {

inline constexpr uint32_t kSmallOpThreads = 256;

// After kLive come the op's tensors that are there, from kTensors on, and then the step state that it reads.
struct SmallOpOperand {
  enum : uint32_t { kX, kY, kLive, kTensors };
};
struct SmallOpArgs {
  int64_t columns, y_columns, x_stride, y_stride;  // elements
  int64_t stride[4];                               // from row to row of t[i]; 0 for what all rows share
  float f[4];
  int32_t i[8];
  uint32_t rows, tensors, steps, unused;
};

// A kernel is given this.
struct RowOp {
  SmallOpArgs args;
  const float* x;
  float* y;
  const uint32_t* live;
  const float* t[4];       // the op's tensors that are there
  const int32_t* step[2];  // the step state that it reads

  __device__ uint32_t live_rows() const { return min(*live, args.rows); }
  __device__ const float* row_of(uint32_t i, uint32_t row) const { return t[i] + row * args.stride[i]; }
};

namespace detail {

inline constexpr uint32_t kMostRowBlocks = 4096;  // further rows are taken in turns

inline RowOp row_op(const SmallOpArgs& a, const Launch& l) {
  using Operand = SmallOpOperand;
  RowOp op{a, l.ptr<const float>(Operand::kX), l.ptr<float>(Operand::kY), l.ptr<const uint32_t>(Operand::kLive), {},
           {}};
  for (uint32_t i = 0; i < a.tensors; ++i) op.t[i] = l.ptr<const float>(Operand::kTensors + i);
  for (uint32_t i = 0; i < a.steps; ++i) op.step[i] = l.ptr<const int32_t>(Operand::kTensors + a.tensors + i);
  return op;
}

template <class F>
__global__ void element_kernel(RowOp op) {
  wait();
  const uint32_t live = op.live_rows();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    const float* x = op.x + row * op.args.x_stride;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < op.args.y_columns; i += stride) {
      op.y[row * op.args.y_stride + i] = F::at(op, row, i, x);
    }
  }
}

template <void (*Kernel)(RowOp), bool kWholeRow>
void run_rows(const SmallOpArgs& a, const Launch& l) {
  constexpr uint32_t kMostBlocksARow = 64;
  const auto wide = static_cast<uint32_t>((a.columns + kSmallOpThreads - 1) / kSmallOpThreads);
  l(Kernel,
    {.blocks = {kWholeRow ? 1 : std::min(wide, kMostBlocksARow), std::min(a.rows, kMostRowBlocks)},
     .threads = {kSmallOpThreads}},
    row_op(a, l));
}

}  // namespace detail

struct SmallOp {
  const char* name;
  bool has_rows = false;                       // the op's tensors are ROWS, else VECTORs and TABLEs
  std::initializer_list<uint32_t> steps = {};  // roles of step state that it reads, at most two
};

// Kernel is a __global__ void (RowOp); it waits first, as the overlap contract says. kWholeRow: one block has a whole
// row, else so many as have a thread for each column of x, at most 64. Throws Failed.
template <void (*Kernel)(RowOp), bool kWholeRow = false>
void record_rows(const SmallOp& spec, const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  SmallOpArgs a{};
  a.columns = from.dim[1];
  a.y_columns = to.dim[1];
  a.x_stride = rec.floats_of_row(x);
  a.y_stride = rec.floats_of_row(y);
  a.rows = static_cast<uint32_t>(from.dim[0]);
  std::copy(std::begin(op.f), std::end(op.f), a.f);
  std::copy(std::begin(op.i), std::end(op.i), a.i);
  std::vector<tenon_operand> operands =
      sdk::operands_by(SmallOpOperand::kTensors,
                       {{SmallOpOperand::kX, x, TENON_READ},
                        {SmallOpOperand::kY, y, TENON_WRITE},
                        {SmallOpOperand::kLive, op.live != 0 ? op.live : rec.step(TENON_STEP_LIVE), TENON_READ}});
  for (const tenon_tid t : op.t) {
    if (t == 0) continue;
    if (spec.has_rows) a.stride[a.tensors] = rec.floats_of_row(t);
    operands.push_back({t, TENON_READ});
    ++a.tensors;
  }
  for (const uint32_t role : spec.steps) operands.push_back({rec.step(role), TENON_READ});
  a.steps = static_cast<uint32_t>(spec.steps.size());
  tenon_cost cost{};
  cost.read[kCostPerRow] = 4.0 * static_cast<double>(a.columns);
  cost.written[kCostPerRow] = 4.0 * static_cast<double>(a.y_columns);
  cost.flops[kCostPerRow] = static_cast<double>(a.columns);
  emit<&detail::run_rows<Kernel, kWholeRow>>(rec, {.name = spec.name, .operands = operands, .chunks = {}, .cost = cost},
                                             a);
}

template <class F>
void record_elements(const SmallOp& spec, const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& rec) {
  record_rows<&detail::element_kernel<F>>(spec, op, x, y, rec);
}

// Returns the sum of a block's values to each of its threads.
__device__ inline float block_sum(float value) {
  __shared__ float of_warp[kSmallOpThreads / 32];
  value = warp_sum(value);
  if (lane_id() == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (uint32_t w = 0; w < blockDim.x / 32; ++w) sum += of_warp[w];
  __syncthreads();
  return sum;
}

}  // namespace tenon::cuda
