// The rows of a routed product are put in groups that share an expert, for kernels that multiply several rows of x by
// weights that they read once. One small kernel makes the groups from the rows' experts.
//
// Example: rows 0 to 4 have the experts 7, 2, 7, 2, 7 of 8. There are min(5, 5 / 16 + 8 + 1) = 5 groups: (2: rows 1,
// 3), (7: rows 0, 2, 4), and three without rows. The order of rows within a group may be any.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::cuda {

// A group is 17 words of 32 bits: its expert (-1: its rows are skipped) and the numbers of its rows, -1 where it has
// fewer. Groups come in the order of experts; those without rows come last.
struct ExpertGroups {
  static constexpr uint32_t kRows = 16, kWords = 1 + kRows;

  // Returns a number of groups for any routing: full ones, and one more for each expert and for skipped rows.
  static uint32_t most(uint32_t rows, uint32_t experts) { return std::min(rows, rows / kRows + experts + 1); }
  // These return fields of a group, by reference where the groups may be written.
  template <class T>
  static __host__ __device__ T& expert(T* groups, uint32_t group) {
    return groups[group * kWords];
  }
  template <class T>
  static __host__ __device__ T& row(T* groups, uint32_t group, uint32_t i) {
    return (groups + group * kWords)[1 + i];
  }
};

struct GroupRowsArgs {
  uint32_t rows, experts, groups;
};
inline constexpr uint32_t kMostExperts = 1024;

struct GroupRowsOperand {
  enum : uint32_t { kGroups, kExperts, kLive, kCount };
};

// One block runs this. Bucket 0 is for rows that are skipped, e + 1 for those of expert e; a row gets the first free
// rank in its bucket, since no row's result depends on its neighbours.
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
      first[b] = next;
      next += (counts[b] + ExpertGroups::kRows - 1) / ExpertGroups::kRows;
      counts[b] = 0;
    }
  }
  __syncthreads();
  for (uint32_t r = threadIdx.x; r < rows; r += blockDim.x) {
    const uint32_t b = bucket(r), rank = atomicAdd(counts + b, 1U);
    const uint32_t group = first[b] + rank / ExpertGroups::kRows;
    ExpertGroups::row(groups, group, rank % ExpertGroups::kRows) = static_cast<int32_t>(r);
    if (rank % ExpertGroups::kRows == 0) ExpertGroups::expert(groups, group) = static_cast<int32_t>(b) - 1;
  }
}

inline void run_group_rows(const GroupRowsArgs& a, const Launch& launch) {
  constexpr uint32_t kThreads = 512;
  launch(&group_rows_kernel, {.blocks = {1}, .threads = {kThreads}}, a,
         launch.ptr<const int32_t>(GroupRowsOperand::kExperts), launch.ptr<const uint32_t>(GroupRowsOperand::kLive),
         launch.ptr<int32_t>(GroupRowsOperand::kGroups));
}

}  // namespace tenon::cuda
