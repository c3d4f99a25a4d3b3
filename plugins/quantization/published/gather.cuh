// This is the op of gather.h on a GPU.
#pragma once

#include <algorithm>

#include "gather.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"

namespace tenon::published {

namespace detail {

// A block takes a row and 1024 columns.
inline constexpr uint32_t kGatherThreads = 256, kGatherColumns = 1024;
static __global__ void gather_kernel(const GatherArgs a, const float* x, const uint16_t* orders, const int32_t* expert,
                                     const uint32_t* live, float* to) {
  const uint32_t row = blockIdx.x, begin = blockIdx.y * kGatherColumns, end = min(begin + kGatherColumns, a.k);
  cuda::wait();
  if (row >= *live) return;
  const uint32_t of_row = a.experts == 0 ? 0 : static_cast<uint32_t>(expert[row]);
  if (of_row >= max(a.experts, 1U)) return;
  const float* from = x + row * a.x_stride;
  const uint16_t* order = orders + size_t{of_row} * a.k;
  for (uint32_t i = begin + threadIdx.x; i < end; i += kGatherThreads) to[size_t{row} * a.k + i] = from[order[i]];
}

inline void run_gather(const GatherArgs& a, const cuda::Launch& launch) {
  launch(&gather_kernel, {.blocks = {a.rows, (a.k + kGatherColumns - 1) / kGatherColumns}, .threads = {kGatherThreads}},
         a, launch.ptr<const float>(GatherOperand::kFrom), launch.ptr<const uint16_t>(GatherOperand::kOrder),
         launch.ptr<const int32_t>(GatherOperand::kExpert), launch.ptr<const uint32_t>(GatherOperand::kLive),
         launch.ptr<float>(GatherOperand::kTo));
}

}  // namespace detail

}  // namespace tenon::published
