// These samplers leave out candidates and keep their form (dense or sparse); a row is done by a cluster of blocks. They
// are recorded as tenon/sdk/cpu/filter.h says; write_kept() there is their naive twin.
#pragma once

#include "tenon/cuda/candidates.cuh"
#include "tenon/sdk/cpu/filter.h"

namespace tenon::cuda {

// The candidates that stay are written here.
struct Kept {
  Kept(const CandidateGrid& g, const Launch& l)
      : logit(l.ptr<float>(sdk::cpu::kKeptLogits)),
        id(g.dense() ? nullptr : l.ptr<int32_t>(sdk::cpu::kKeptIds)),
        count(g.dense() ? nullptr : l.ptr<int32_t>(sdk::cpu::kKeptCounts)) {}

  float* logit;
  int32_t *id, *count;
};

// Ends the body of a kernel over cluster_grid(): writes the candidates for which keep(logit, id) is true. `shared` has
// one word for every warp.
template <class Keep>
__device__ void write_kept(const CandidateInput& in, const CandidateRow& row, const Kept& kept, uint32_t* shared,
                           Keep keep) {
  float* logit = kept.logit + size_t{row.row} * in.g.width;
  if (in.g.dense()) {
    for_each_entry(row, [&](uint32_t i, float l) { logit[i] = keep(l, row.id_of(i)) ? l : kOut; });
    return;
  }
  int32_t* id = kept.id + size_t{row.row} * in.g.width;
  uint32_t n = 0;
  for (uint32_t begin = 0; begin < row.n; begin += kClusterThreads) {
    const uint32_t i = begin + threadIdx.x;
    const bool stays = i < row.n && keep(row.logit[i], row.id[i]);
    const Scan<uint32_t> scan = block_scan(uint32_t{stays}, shared);
    if (stays) {
      logit[n + scan.before] = row.logit[i];
      id[n + scan.before] = row.id[i];
    }
    n += scan.all;
    __syncthreads();
  }
  if (threadIdx.x == 0) kept.count[row.row] = static_cast<int32_t>(n);
}

// Returns the greatest logit of a row, in every thread of its cluster; minus infinity if none is in. For `shared`, see
// cluster_max().
__device__ inline float greatest_of_row(const CandidateRow& row, uint32_t* shared) {
  uint32_t most = 0;
  for_each_entry(row, [&](uint32_t, float logit) {
    if (logit > kOut) most = max(most, sdk::cpu::rising_bits(logit));
  });
  most = cluster_max(most, shared);
  return most == 0 ? kOut : sdk::cpu::logit_of_bits(most);
}

}  // namespace tenon::cuda
