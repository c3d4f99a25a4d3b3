// The rows of a routed product in groups of one expert each, for kernels that multiply several rows of x with weights
// that they read once. One small kernel makes them of the rows' experts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::cuda {

// A group is its expert (-1: its rows are skipped) and the numbers of its rows, -1 where it has fewer: i32[17]. Groups
// come in the order of experts; those without rows last.
struct ExpertGroups {
  static constexpr uint32_t kRows = 16, kWords = 1 + kRows;

  // So many are enough for any routing: whole ones, and one that is not for each expert and for the skipped rows.
  static uint32_t most(uint32_t rows, uint32_t experts) { return std::min(rows, rows / kRows + experts + 1); }
  template <class T>
  static __host__ __device__ T* at(T* groups, uint32_t group) {
    return groups + group * kWords;
  }
};

struct GroupRowsArgs {
  uint32_t rows, experts, groups;
};
inline constexpr uint32_t kMostExperts = 1024;

// One block. Bucket 0 is for rows that are skipped, e + 1 for those of expert e; a row's place in its bucket is
// whichever it gets first, since no row's result depends on its neighbours.
static __global__ void group_rows_kernel(const GroupRowsArgs a, const int32_t* expert, const uint32_t* live,
                                         int32_t* groups) {
  __shared__ uint32_t counts[kMostExperts + 1], first[kMostExperts + 1];
  const uint32_t buckets = a.experts + 1;
  for (uint32_t b = threadIdx.x; b < buckets; b += blockDim.x) counts[b] = 0;
  wait();
  for (uint32_t i = threadIdx.x; i < a.groups * ExpertGroups::kWords; i += blockDim.x) groups[i] = -1;
  __syncthreads();
  const uint32_t rows = min(*live, a.rows);
  const auto bucket = [&](uint32_t r) {
    const auto e = static_cast<uint32_t>(expert[r]);
    return e < a.experts ? e + 1 : 0;
  };
  for (uint32_t r = threadIdx.x; r < rows; r += blockDim.x) atomicAdd(counts + bucket(r), 1U);
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t next = 0;
    for (uint32_t b = 0; b < buckets; ++b) {
      first[b] = next, next += (counts[b] + ExpertGroups::kRows - 1) / ExpertGroups::kRows, counts[b] = 0;
    }
  }
  __syncthreads();
  for (uint32_t r = threadIdx.x; r < rows; r += blockDim.x) {
    const uint32_t b = bucket(r), place = atomicAdd(counts + b, 1U);
    int32_t* group = ExpertGroups::at(groups, first[b] + place / ExpertGroups::kRows);
    group[1 + place % ExpertGroups::kRows] = static_cast<int32_t>(r);
    if (place % ExpertGroups::kRows == 0) group[0] = static_cast<int32_t>(b) - 1;
  }
}

// Operands: groups, the rows' experts, live rows.
inline void run_group_rows(const GroupRowsArgs& a, const Launch& launch) {
  constexpr uint32_t kThreads = 512;
  launch(&group_rows_kernel, {.blocks = {1}, .threads = {kThreads}}, a, launch.ptr<const int32_t>(1),
         launch.ptr<const uint32_t>(2), launch.ptr<int32_t>(0));
}

}  // namespace tenon::cuda
