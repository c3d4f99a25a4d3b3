// A sampler's CUDA kernels reach their candidates through this. Arguments, operands and order
// are those of tenon/sdk/cpu/candidates.h.
//
//   __global__ void kernel(cuda::CandidateInput in, ...) {
//     cuda::CandidateRow row;
//     if (!cuda::open(in, row)) return;       // waits
//     cuda::for_each_entry(row, [&](uint32_t i, float logit) { ... });
//   }
//   launch(&kernel, cuda::entry_grid(grid), cuda::CandidateInput(grid, launch), ...);     in the op
//
// blockIdx.y is the row. Its blocks share it: any number of them, entry by entry (entry_grid()), or one cluster that
// can exchange what its blocks have found (cluster_grid()).
#pragma once

#include <algorithm>

#include "tenon/cuda/cluster.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/warp.cuh"
#include "tenon/sdk/cpu/candidates.h"

namespace tenon::cuda {

using sdk::cpu::CandidateGrid;
using sdk::cpu::kOut;

constexpr uint32_t kWarp = 32, kAllLanes = ~0u;

struct CandidateInput {
  CandidateInput(const CandidateGrid& grid, const Launch& l)
      : g(grid),
        logit(l.ptr<const float>(sdk::cpu::kLogits)),
        live(l.ptr<const uint32_t>(sdk::cpu::kLive)),
        out_row(l.ptr<const int32_t>(sdk::cpu::kOutRow)),
        slot(l.ptr<const int32_t>(sdk::cpu::kSlot)),
        id(g.dense() ? nullptr : l.ptr<const int32_t>(g.ids)),
        count(g.dense() ? nullptr : l.ptr<const int32_t>(g.counts())) {}

  CandidateGrid g;
  const float* logit;
  const uint32_t* live;
  const int32_t *out_row, *slot, *id, *count;
};

struct CandidateRow {
  uint32_t row;            // the row in the candidates' tensors
  int32_t step_row, slot;  // where the logits come from, and whose they are
  uint32_t n;
  const float* logit;  // [n]
  const int32_t* id;   // [n], or nullptr: DENSE

  // Returns the id as the sampler before has left it. It may be no token: a sampler that leaves such an id is reported
  // when the step has ended (tenon/sdk/told.h).
  __device__ int32_t id_of(uint32_t i) const { return id != nullptr ? id[i] : static_cast<int32_t>(i); }
  // Returns the id for a look-up in a table: it is always below vocab.
  __device__ uint32_t token_of(uint32_t i, uint32_t vocab) const {
    return min(static_cast<uint32_t>(id_of(i)), vocab - 1);
  }
};

// Every kernel begins with this; the overlap contract's wait is in it. Returns false if the
// block's row is padding: nothing is to be done.
__device__ inline bool open(const CandidateInput& in, CandidateRow& row) {
  row.row = blockIdx.y;
  const bool live = row.row < in.live[sdk::kLiveOutRows];
  if (live) {
    row.step_row = in.out_row[row.row];
    row.slot = in.slot[row.step_row];
  }
  wait();
  if (!live) return false;
  // No count leads out of the row.
  row.n = in.g.dense() ? in.g.width
                       : static_cast<uint32_t>(min(max(in.count[row.row], 0), static_cast<int32_t>(in.g.width)));
  row.logit = in.logit + row.row * in.g.logit_row;
  row.id = in.g.dense() ? nullptr : in.id + row.row * in.g.id_row;
  return true;
}

// ---- entry by entry ----

// SPARSE rows have room for far more than they hold, and few blocks.
inline Grid entry_grid(const CandidateGrid& g) {
  constexpr uint32_t kThreads = 256, kEntries = 1024, kMostDense = 128, kMostSparse = 4;
  const uint32_t blocks = (g.width + kEntries - 1) / kEntries;
  return {.blocks = {std::min(blocks, g.dense() ? kMostDense : kMostSparse), g.rows}, .threads = {kThreads}};
}

// Calls f(i, logit) for this thread's share of the row. Logits are loaded several at a time: one alone takes as long.
template <class F>
__device__ void for_each_entry(const CandidateRow& row, F f) {
  constexpr uint32_t kAtOnce = 8;
  const uint32_t stride = gridDim.x * blockDim.x;
  for (uint32_t first = blockIdx.x * blockDim.x + threadIdx.x; first < row.n; first += kAtOnce * stride) {
    float logit[kAtOnce];
#pragma unroll
    for (uint32_t e = 0; e < kAtOnce; ++e) {
      logit[e] = first + e * stride < row.n ? row.logit[first + e * stride] : kOut;
    }
#pragma unroll
    for (uint32_t e = 0; e < kAtOnce; ++e) {
      if (first + e * stride < row.n) f(first + e * stride, logit[e]);
    }
  }
}

// ---- choosing: the greatest score, the lowest id among equals ----

// The blocks of a row put here what they have found; it is zero between launches.
struct Selection {
  unsigned long long best;
  uint32_t blocks, reserved;
};
inline uint64_t selection_bytes(const CandidateGrid& g) {
  return g.rows * sizeof(Selection);
}

// Returns the greatest value of a block, in every thread. `shared` has one word for every warp.
__device__ inline uint64_t block_max(uint64_t value, uint64_t* shared) {
  value = over_warp(value, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (uint32_t w = 0; w < blockDim.x / kWarp; ++w) value = value > shared[w] ? value : shared[w];
  return value;
}

// Chooses one entry of each row; a kernel over entry_grid() has this as its body. Entries with a score(row, i, logit)
// of minus infinity or NaN are out. The last block that meets in `selections` writes the token, 0 if all are out.
template <class Score>
__device__ void select(const CandidateInput& in, int32_t* next, Selection* selections, Score score) {
  __shared__ uint64_t warps[kWarp];
  CandidateRow row;
  if (!open(in, row)) return;
  const uint32_t busy = min(gridDim.x, max(1u, (row.n + blockDim.x - 1) / blockDim.x));
  if (blockIdx.x >= busy) return;
  uint64_t best = 0;
  for_each_entry(row, [&](uint32_t i, float logit) {
    const float s = score(row, i, logit);
    if (!(s > kOut)) return;
    const uint64_t key = sdk::cpu::candidate_key(s, row.id_of(i));
    best = key > best ? key : best;
  });
  best = block_max(best, warps);
  if (threadIdx.x != 0) return;
  if (busy > 1) {
    Selection& all = selections[row.row];
    atomicMax(&all.best, static_cast<unsigned long long>(best));
    __threadfence();
    if (atomicAdd(&all.blocks, 1) != busy - 1) return;
    __threadfence();
    best = atomicExch(&all.best, 0);
    all.blocks = 0;
  }
  next[row.row] = best == 0 ? 0 : sdk::cpu::id_of_key(best);
}

// ---- a row by a cluster ----

constexpr uint32_t kClusterThreads = 512, kClusterWarps = kClusterThreads / kWarp, kMostClusterBlocks = 8;

// Many rows have small clusters, so that two blocks for every multiprocessor of
// the largest GPUs have all of them at once.
template <class... P>
Grid cluster_grid(void (*kernel)(P...), const CandidateGrid& g) {
  constexpr uint32_t kAtOnce = 2 * 132;
  uint32_t blocks = g.dense() && has_clusters(kernel) ? kMostClusterBlocks : 1;
  while (blocks > 1 && blocks * g.rows > kAtOnce) blocks /= 2;
  return {.blocks = {blocks, g.rows}, .threads = {kClusterThreads}, .cluster = blocks};
}

// Returns the greatest value of a cluster, in every thread. `shared` has one word for every warp and one more, which
// are not to be written again before the cluster has met another time.
__device__ inline uint32_t cluster_max(uint32_t value, uint32_t* shared) {
  const auto cluster = this_cluster();
  value = __reduce_max_sync(kAllLanes, value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (uint32_t w = 0; w < kClusterWarps; ++w) value = max(value, shared[w]);
  if (threadIdx.x == 0) shared[kClusterWarps] = value;
  cluster.sync();
  for (uint32_t r = 0; r < cluster.num_blocks(); ++r) {
    value = max(value, *cluster.map_shared_rank(shared + kClusterWarps, r));
  }
  return value;
}

// Returns sums of `value` over the threads before this one, and over all. `shared` has one for every warp.
template <class T>
struct Scan {
  T before, all;
};
template <class T>
__device__ Scan<T> block_scan(T value, T* shared) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  T sum = value;
  for (uint32_t d = 1; d < kWarp; d *= 2) {
    const T other = __shfl_up_sync(kAllLanes, sum, d);
    if (lane >= d) sum += other;
  }
  if (lane == kWarp - 1) shared[warp] = sum;
  __syncthreads();
  T before = 0, all = 0;
  for (uint32_t w = 0; w < kClusterWarps; ++w) {
    if (w == warp) before = all;
    all += shared[w];
  }
  return {before + sum - value, all};
}

}  // namespace tenon::cuda
