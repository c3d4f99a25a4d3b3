// This is evict.h's op on a GPU; its naive twin is evict.cc. A row without a cell gets place -1, which appends skip.
//
// A few cells are freed one after another, each by a reduction over all: that is a step of decoding under
// kv_cache.h2o. Many are found by sorting the cells' numbers, in scratch (a bitonic network: every thread
// compares, and the order does not depend on time).
#include <climits>

#include "evict.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"

namespace tenon::evicting {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;
constexpr uint32_t kFew = 16;  // so many reductions take less time than a sort

struct Pointers {
  int32_t *pos, *place, *prompt;
  float *weights, *scores;
  uint32_t* scratch;  // (seqs, heads, 2, page_cells)
  const uint32_t* live;
  const int32_t *seq_slot, *seq_row, *kv_len;
};

// This is a KV head of a sequence; cell c is thread c % kThreads's.
struct Line {
  int32_t* pos;  // (page_cells)
  float *weight, *score;
  int32_t kv_len;
  uint32_t* order;  // (page_cells) cells
  float* pooled;    // (page_cells) infinite for cells that are free or exempt

  __device__ bool may_go(const EvictArgs& a, uint32_t c) const {
    return c < a.cells && pos[c] >= 0 && pos[c] < kv_len - static_cast<int32_t>(a.rule.recent);
  }
  __device__ void free(uint32_t c) const {
    pos[c] = -1;
    score[c] = 0;
  }
};

// This may be evicted next. Of two, the one with the lesser pooled score goes first, then the one with the lesser
// score, then the one with the older position.
struct Candidate {
  float pooled = INFINITY, score = INFINITY;
  int32_t pos = INT_MAX;
  uint32_t cell = UINT_MAX;

  __device__ bool goes_before(const Candidate& o) const {
    if (pooled != o.pooled) return pooled < o.pooled;
    if (score != o.score) return score < o.score;
    return pos != o.pos ? pos < o.pos : cell < o.cell;
  }
  __device__ void take(const Candidate& o) {
    if (o.goes_before(*this)) *this = o;
  }
  __device__ Candidate from_lane(uint32_t distance) const {
    return {__shfl_xor_sync(~0u, pooled, distance), __shfl_xor_sync(~0u, score, distance),
            __shfl_xor_sync(~0u, pos, distance), __shfl_xor_sync(~0u, cell, distance)};
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

// Sorts by Batcher's bitonic network; the whole block calls this. n: a power of two. before: a total order.
template <class Before>
__device__ void sort(uint32_t* order, uint32_t n, const Before& before) {
  for (uint32_t run = 2; run <= n; run *= 2) {
    for (uint32_t distance = run / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < n / 2; i += kThreads) {
        const uint32_t low = 2 * i - i % distance, high = low + distance, x = order[low], y = order[high];
        const bool ascending = (low & run) == 0;
        if (before(y, x) != ascending) continue;
        order[low] = y;
        order[high] = x;
      }
    }
  }
  __syncthreads();
}

// Does steps 1 and 2; the whole block calls this, and every thread gets how many cells are in use.
__device__ uint32_t settle(const EvictArgs& a, const Line& line) {
  __shared__ uint32_t in_use;
  if (threadIdx.x == 0) in_use = 0;
  __syncthreads();
  uint32_t own = 0;
  for (uint32_t c = threadIdx.x; c < a.page_cells; c += kThreads) {
    if (c >= a.cells || line.pos[c] >= line.kv_len) line.pos[c] = -1;
    const float sum = line.score[c] + line.weight[c];
    line.score[c] = line.pos[c] >= 0 && sum >= 0 ? sum : 0;
    line.weight[c] = 0;
    own += line.pos[c] >= 0 ? 1 : 0;
  }
  atomicAdd(&in_use, own);
  __syncthreads();
  return in_use;
}

// Every cell gets its pooled score. The whole block calls this.
__device__ void pool(const EvictArgs& a, const Line& line) {
  for (uint32_t c = threadIdx.x; c < a.page_cells; c += kThreads) {
    line.order[c] = c;
    line.pooled[c] = line.may_go(a, c) ? line.score[c] : INFINITY;
  }
  if (a.rule.around == 0) return;
  const auto place = [&](uint32_t c) { return line.may_go(a, c) ? line.pos[c] : INT_MAX; };
  sort(line.order, a.page_cells, [&](uint32_t x, uint32_t y) {
    const int32_t of_x = place(x), of_y = place(y);
    return of_x != of_y ? of_x < of_y : x < y;
  });
  for (uint32_t i = threadIdx.x; i < a.page_cells; i += kThreads) {
    if (!line.may_go(a, line.order[i])) continue;
    const uint32_t end = min(a.page_cells, i + a.rule.around + 1);
    float most = 0;
    for (uint32_t j = i - min(i, a.rule.around); j < end; ++j) {
      if (line.may_go(a, line.order[j])) most = fmaxf(most, line.score[line.order[j]]);
    }
    line.pooled[line.order[i]] = most;
  }
  __syncthreads();
}

// Does step 3. The whole block calls this.
__device__ void free_least(const EvictArgs& a, const Line& line, uint32_t drop) {
  __shared__ Candidate of_warp[kWarps];
  const auto candidate = [&](uint32_t c) { return Candidate{line.pooled[c], line.score[c], line.pos[c], c}; };
  pool(a, line);
  if (drop > kFew) {
    sort(line.order, a.page_cells, [&](uint32_t x, uint32_t y) { return candidate(x).goes_before(candidate(y)); });
    for (uint32_t i = threadIdx.x; i < min(drop, a.page_cells); i += kThreads) {
      if (line.may_go(a, line.order[i])) line.free(line.order[i]);
    }
    return;
  }
  for (; drop > 0; --drop) {
    Candidate mine;
    for (uint32_t c = threadIdx.x; c < a.cells; c += kThreads) {
      if (line.may_go(a, c)) mine.take(candidate(c));
    }
    const Candidate found = least_of_block(mine, of_warp);
    if (found.cell == UINT_MAX) break;
    if (found.cell % kThreads == threadIdx.x) line.free(found.cell);
  }
}

// This says which rows of a sequence a line has to place in the step.
struct SequenceRows {
  int32_t* place;  // (rows of the step, heads) cells
  uint32_t head;
  int32_t first, end;  // end: after the last one
};

// Does step 4: the block walks the cells, kThreads at a time, and finds free ones in their order.
__device__ void place_rows(const EvictArgs& a, const Line& line, const SequenceRows& rows) {
  __shared__ uint32_t of_warp[kWarps];
  const auto [place, head, first, end] = rows;
  const uint32_t warp = threadIdx.x / 32;
  int32_t row = first;
  for (uint32_t from = 0; from < a.cells && row < end; from += kThreads) {
    const uint32_t c = from + threadIdx.x;
    const bool free = c < a.cells && line.pos[c] < 0;
    const uint32_t all = __ballot_sync(~0u, free);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[warp] = static_cast<uint32_t>(__popc(all));
    __syncthreads();
    auto mine = row + __popc(all & ((1u << threadIdx.x % 32) - 1));
    for (uint32_t w = 0; w < kWarps; ++w) {
      mine += w < warp ? static_cast<int32_t>(of_warp[w]) : 0;
      row += static_cast<int32_t>(of_warp[w]);
    }
    if (free && mine < end) {
      line.pos[c] = line.kv_len + mine - first;
      place[static_cast<size_t>(mine) * a.heads + head] = static_cast<int32_t>(c);
    }
  }
  for (int32_t left = row + static_cast<int32_t>(threadIdx.x); left < end; left += kThreads) {
    place[static_cast<size_t>(left) * a.heads + head] = -1;
  }
}

// A block is a KV head of a sequence.
__global__ void __launch_bounds__(kThreads) evict_kernel(EvictArgs a, Pointers p) {
  cuda::wait();
  const uint32_t head = blockIdx.x, seq = blockIdx.y;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto slot = static_cast<uint32_t>(p.seq_slot[seq]);
  const size_t of_head = size_t{slot} * a.heads + head, at = of_head * a.page_cells;
  uint32_t* const order = p.scratch + (size_t{seq} * a.heads + head) * 2 * a.page_cells;
  const Line line{p.pos + at,     p.weights + at, p.scores + at,
                  p.kv_len[slot], order,          reinterpret_cast<float*>(order + a.page_cells)};
  const int32_t first = p.seq_row[seq], end = p.seq_row[seq + 1];
  const auto rows = static_cast<uint32_t>(end - first);
  const bool prompt = line.kv_len > 0 && p.prompt[of_head] != 0;

  const uint32_t used = settle(a, line), keep = tokens_kept(a.rule, used, rows, prompt);
  if (used > keep) free_least(a, line, used - keep);
  __syncthreads();
  if (threadIdx.x == 0) p.prompt[of_head] = prompt_after(a.rule, rows, prompt) ? 1 : 0;
  const float share = share_kept(a.rule, rows);
  if (share != 1) {
    for (uint32_t c = threadIdx.x; c < a.cells; c += kThreads) line.score[c] *= share;
  }
  place_rows(a, line, {p.place, head, first, end});
}

void evict_op(const EvictArgs& a, const cuda::Launch& l) {
  l(&evict_kernel, {.blocks = {a.heads, a.seqs}, .threads = {kThreads}}, a,
    Pointers{.pos = l.ptr<int32_t>(kPos),
             .place = l.ptr<int32_t>(kPlace),
             .prompt = l.ptr<int32_t>(kPrompt),
             .weights = l.ptr<float>(kWeights),
             .scores = l.ptr<float>(kScores),
             .scratch = l.scratch<uint32_t>(),
             .live = l.ptr<const uint32_t>(kLive),
             .seq_slot = l.ptr<const int32_t>(kSeqSlot),
             .seq_row = l.ptr<const int32_t>(kSeqRow),
             .kv_len = l.ptr<const int32_t>(kKvLen)});
}

}  // namespace

void emit_evict(sdk::Recorder& r, std::span<const tenon_operand> operands, const EvictArgs& args) {
  const uint64_t lines = uint64_t{args.seqs} * args.heads;
  cuda::emit<evict_op>(r,
                       {.name = "evict",
                        .operands = operands,
                        .chunks = {},
                        .scratch_bytes = lines * args.page_cells * (sizeof(uint32_t) + sizeof(float))},
                       args);
}

}  // namespace tenon::evicting
