// The op of evict.h on a GPU; evict.cc is the naive twin. A row that finds no free cell has the place -1, which appends pass over.
#include <climits>

#include "evict.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"

namespace tenon::h2o {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;

struct Pointers {
  int32_t *pos, *place;
  float *weights, *scores;
  const uint32_t* live;
  const int32_t *seq_slot, *seq_row, *kv_len;
};

// A candidate for the next eviction: of two the one of the lesser score, then of the older position.
struct Candidate {
  float score = INFINITY;
  int32_t pos = INT_MAX;
  uint32_t cell = UINT_MAX;

  __device__ void take(const Candidate& o) {
    if (o.score < score || (o.score == score && o.pos < pos)) *this = o;
  }
  __device__ Candidate from_lane(uint32_t distance) const {
    return {__shfl_xor_sync(~0u, score, distance), __shfl_xor_sync(~0u, pos, distance),
            __shfl_xor_sync(~0u, cell, distance)};
  }
};

// The whole block calls this; every thread gets the result.
__device__ Candidate least_of_block(Candidate own, Candidate (&of_warp)[kWarps]) {
  for (uint32_t d = 16; d > 0; d /= 2) own.take(own.from_lane(d));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  Candidate found;
  for (const Candidate& c : of_warp) found.take(c);
  return found;
}

// A block is a KV head of a sequence; cell c is thread c % kThreads's.
__global__ void __launch_bounds__(kThreads) evict_kernel(EvictArgs a, Pointers p) {
  __shared__ Candidate of_warp[kWarps];
  __shared__ uint32_t in_use;
  cuda::wait();
  const uint32_t head = blockIdx.x, seq = blockIdx.y;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto slot = static_cast<uint32_t>(p.seq_slot[seq]);
  const size_t at = (size_t{slot} * a.heads + head) * a.page_cells;
  int32_t* pos = p.pos + at;
  float *weight = p.weights + at, *score = p.scores + at;
  const int32_t kv_len = p.kv_len[slot];

  // ---- 1 and 2 ----
  if (threadIdx.x == 0) in_use = 0;
  __syncthreads();
  uint32_t own = 0;
  for (uint32_t c = threadIdx.x; c < a.page_cells; c += kThreads) {
    if (c >= a.cells || pos[c] >= kv_len) pos[c] = -1;
    score[c] = pos[c] < 0 ? 0 : score[c] + weight[c];
    weight[c] = 0;
    own += pos[c] >= 0 ? 1 : 0;
  }
  atomicAdd(&in_use, own);
  __syncthreads();

  // ---- 3 ----
  for (uint32_t used = in_use; used > a.budget; --used) {
    Candidate mine;
    for (uint32_t c = threadIdx.x; c < a.cells; c += kThreads) {
      if (pos[c] >= 0 && pos[c] < kv_len - static_cast<int32_t>(a.recent)) mine.take({score[c], pos[c], c});
    }
    const Candidate found = least_of_block(mine, of_warp);
    if (found.cell == UINT_MAX) break;
    if (found.cell % kThreads == threadIdx.x) {
      pos[found.cell] = -1;
      score[found.cell] = 0;
    }
  }

  // ---- 4: the first warp walks the cells, 32 at a time ----
  __syncthreads();
  if (threadIdx.x >= 32) return;
  int32_t row = p.seq_row[seq];
  const int32_t first = row, end = p.seq_row[seq + 1];
  for (uint32_t from = 0; from < a.cells && row < end; from += 32) {
    const uint32_t c = from + threadIdx.x;
    const bool free = c < a.cells && pos[c] < 0;
    const uint32_t all = __ballot_sync(~0u, free), before = __popc(all & ((1u << threadIdx.x) - 1));
    const int32_t mine = row + static_cast<int32_t>(before);
    if (free && mine < end) {
      pos[c] = kv_len + mine - first;
      p.place[static_cast<size_t>(mine) * a.heads + head] = static_cast<int32_t>(c);
    }
    row += __popc(all);
  }
  for (int32_t left = row + static_cast<int32_t>(threadIdx.x); left < end; left += 32) {
    p.place[static_cast<size_t>(left) * a.heads + head] = -1;
  }
}

void evict_op(const EvictArgs& a, const cuda::Launch& l) {
  l(&evict_kernel, {.blocks = {a.heads, a.seqs}, .threads = {kThreads}}, a,
    Pointers{l.ptr<int32_t>(kPos), l.ptr<int32_t>(kPlace), l.ptr<float>(kWeights), l.ptr<float>(kScores),
             l.ptr<const uint32_t>(kLive), l.ptr<const int32_t>(kSeqSlot), l.ptr<const int32_t>(kSeqRow),
             l.ptr<const int32_t>(kKvLen)});
}

}  // namespace

void emit_evict(sdk::Recorder& r, std::span<const tenon_operand> operands, const EvictArgs& args) {
  cuda::emit<evict_op>(r, {.name = "evict", .operands = operands, .chunks = {}}, args);
}

}  // namespace tenon::h2o
