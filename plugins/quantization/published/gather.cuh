// This brings x into the order of a matrix whose columns are held in another one than the
// file's (act-order): k numbers a row are moved. A row's order is that of its expert, where it has one.
#pragma once

#include <algorithm>

#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"

namespace tenon::published {

struct GatherArgs {
  uint32_t k, rows, experts;  // experts: 0: there is one order for all rows
  int64_t x_stride;           // floats
};
struct GatherOperand {
  enum : uint32_t { kTo, kFrom, kLive, kExpert, kOrder };
};

namespace detail {

// Does to[r][i] = x[r][order[expert[r]][i]]; a block takes a row and 1024 columns. The product skips a row whose expert
// is none.
inline constexpr uint32_t kGatherThreads = 256, kGatherColumns = 1024;
static __global__ void gather_kernel(const GatherArgs a, const float* x, const uint32_t* orders, const int32_t* expert,
                                     const uint32_t* live, float* to) {
  const uint32_t row = blockIdx.x, begin = blockIdx.y * kGatherColumns, end = min(begin + kGatherColumns, a.k);
  cuda::wait();
  if (row >= *live) return;
  const uint32_t of_row = a.experts == 0 ? 0 : static_cast<uint32_t>(expert[row]);
  if (of_row >= max(a.experts, 1U)) return;
  const float* from = x + row * a.x_stride;
  const uint32_t* order = orders + size_t{of_row} * a.k;
  for (uint32_t i = begin + threadIdx.x; i < end; i += kGatherThreads) to[size_t{row} * a.k + i] = from[order[i]];
}

inline void run_gather(const GatherArgs& a, const cuda::Launch& launch) {
  launch(&gather_kernel, {.blocks = {a.rows, (a.k + kGatherColumns - 1) / kGatherColumns}, .threads = {kGatherThreads}},
         a, launch.ptr<const float>(GatherOperand::kFrom), launch.ptr<const uint32_t>(GatherOperand::kOrder),
         launch.ptr<const int32_t>(GatherOperand::kExpert), launch.ptr<const uint32_t>(GatherOperand::kLive),
         launch.ptr<float>(GatherOperand::kTo));
}

}  // namespace detail

// Emits the op, and returns the tensor that it makes: (rows, k) f32. order: the store with the column of each, or that
// of each expert.
inline tenon_tid record_gather(const cuda::PackedSite& site, const tenon_linear_call& call, tenon_tid order,
                               sdk::Recorder& rec) {
  const uint32_t k = site.k;
  const tenon_tensor x = rec.describe(call.x);
  const tenon_tid to = rec.temp(sdk::tensor(TENON_F32, {x.dim[0], int64_t{k}}));
  const tenon_tid live = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
  const tenon_tid expert = site.experts != 0 ? call.expert : live;
  const tenon_operand operands[] = {
      {to, TENON_WRITE}, {call.x, TENON_READ}, {live, TENON_READ}, {expert, TENON_READ}, {order, TENON_READ}};
  sdk::OpSpec spec{.name = "gather", .operands = operands, .chunks = {}};
  spec.cost.read[site.experts == 0 ? sdk::kFixedCost : sdk::kCostPerRow] = double{sizeof(uint32_t)} * k;
  spec.cost.read[sdk::kCostPerRow] += double{sizeof(float)} * k;
  spec.cost.written[sdk::kCostPerRow] = double{sizeof(float)} * k;
  cuda::emit<&detail::run_gather>(
      rec, spec,
      GatherArgs{k, static_cast<uint32_t>(x.dim[0]), site.experts, x.stride[0] / static_cast<int64_t>(sizeof(float))});
  return to;
}

}  // namespace tenon::published
