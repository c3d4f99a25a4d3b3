// This is the op of rotated_heads.h on a GPU; rotated_heads_cpu.h is the naive twin.
#pragma once

#include <algorithm>

#include "rotated_heads.h"
#include "tenon/cuda/hadamard.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/warp.cuh"
#include "tenon/sdk/live.h"

namespace tenon::attention {

inline constexpr uint32_t kRotateWarps = 4, kRotateMostRows = 4096;  // a grid has so many; other rows take turns

struct RotatePointers {
  const float* from;
  float* to;
  const uint32_t* live;
};

// A warp takes a head of a row.
static __global__ void __launch_bounds__(32 * kRotateWarps) rotate_kernel(RotateArgs a, RotatePointers p) {
  extern __shared__ float heads[];  // (warps, dim)
  cuda::wait();
  const uint32_t lane = cuda::lane_id(), warp = threadIdx.x / 32, head = blockIdx.x * kRotateWarps + warp;
  if (head >= a.heads) return;
  float* x = heads + warp * a.dim;
  for (uint32_t row = blockIdx.y; row < min(p.live[sdk::kLiveRows], a.rows); row += gridDim.y) {
    const float* from = p.from + row * a.from_row + head * a.dim;
    float* to = p.to + row * a.to_row + head * a.dim;
    for (uint32_t d = lane; d < a.dim; d += 32) x[d] = from[d];
    cuda::rotate_head(x, a.dim);
    for (uint32_t d = lane; d < a.dim; d += 32) to[d] = x[d];
    __syncwarp();
  }
}
inline void rotate_op(const RotateArgs& a, const cuda::Launch& l) {
  l(&rotate_kernel,
    {.blocks = {(a.heads + kRotateWarps - 1) / kRotateWarps, std::min(a.rows, kRotateMostRows)},
     .threads = {32 * kRotateWarps},
     .shared_bytes = kRotateWarps * a.dim * sizeof(float)},
    a, RotatePointers{l.ptr<const float>(kRotateFrom), l.ptr<float>(kRotateTo), l.ptr<const uint32_t>(kRotateLive)});
}

template <class Record>
void record_rotated_cuda(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r, const Record& record) {
  const auto emit = [&](std::span<const tenon_operand> operands, const tenon_cost& cost, const RotateArgs& args) {
    cuda::emit<rotate_op>(r, {.name = "rotate", .operands = operands, .chunks = {}, .cost = cost}, args);
  };
  record_rotated(a, call, r, emit, record);
}

}  // namespace tenon::attention
