// The ops of choose.h on a GPU; choose.cc is the naive twin, but for the order in which a bound's products are summed.
//
// The choice is three kernels: summaries of the pages that the step has filled, bounds of all pages, and the pages of
// the largest bounds. The last one finds the bound of the last page that is chosen eight bits at a time, by counting,
// and then goes through the pages in order: nothing depends on which thread comes first.
#include <algorithm>

#include "choose.h"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/warp.cuh"
#include "tenon/sdk/live.h"

namespace tenon::quest {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;
constexpr uint32_t kSummaryBlocks = 16;  // so many share the pages of a KV head of a sequence
constexpr uint32_t kPagesOfWarp = 8;     // a warp computes the bounds of so many

struct SummaryPointers {
  void* keys;
  const int32_t* cell_pages;
  void* summaries;
  const int32_t* summarized;
  const uint32_t* live;
  const int32_t *seq_slot, *seq_row, *kv_len;
};

// A thread has elements d, d + kThreads, ... of a page's keys.
template <class E>
__global__ void __launch_bounds__(kThreads)
    summarize_kernel(const __grid_constant__ SummaryArgs a, const __grid_constant__ SummaryPointers p) {
  cuda::wait();
  const uint32_t head = blockIdx.x, seq = blockIdx.y, dim = a.kv.k.dim;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto slot = static_cast<uint32_t>(p.seq_slot[seq]);
  const size_t line = size_t{slot} * a.kv.heads + head;
  const int32_t kv_len = p.kv_len[slot];
  const auto from = static_cast<uint32_t>(min(p.summarized[line], kv_len));
  const uint32_t end = min(static_cast<uint32_t>(kv_len + p.seq_row[seq + 1] - p.seq_row[seq]) / a.page, a.pages);
  const cuda::KvRows keys({a.kv, a.kv.k, p.keys, nullptr, p.cell_pages}, slot, head);
  for (uint32_t page = from / a.page + blockIdx.z; page < end; page += gridDim.z) {
    E* to = static_cast<E*>(p.summaries) + (line * a.pages + page) * 2 * dim;
    for (uint32_t d = threadIdx.x; d < dim; d += kThreads) {
      float greatest = -INFINITY, least = INFINITY;
      for (uint32_t cell = page * a.page; cell < (page + 1) * a.page; ++cell) {
        const auto* key = reinterpret_cast<const E*>(keys.at(cell));
        const float x = cuda::to_float(key[d]);
        greatest = fmaxf(greatest, x);
        least = fminf(least, x);
      }
      to[d] = cuda::from_float<E>(greatest);
      to[dim + d] = cuda::from_float<E>(least);
    }
  }
}

struct ChoosePointers {
  const float* q;
  const void* summaries;
  int32_t *summarized, *chosen;
  const uint32_t* live;
  const int32_t *pos, *seq_slot, *seq_row, *kv_len;
  uint32_t* bounds;
};

// This is a row that chooses, and how many pages there are to choose from.
struct Choice {
  uint32_t row, slot, before;
  uint32_t* bounds;  // (pages) of a KV head
};

// This names a KV head of row i of a sequence.
struct RowHead {
  uint32_t seq, i, head;
};
// Finds what a row chooses from. Returns false if there is no such row, or if the sequence's rows read everything.
__device__ bool find_choice(const ChooseArgs& a, const ChoosePointers& p, const RowHead& of, Choice& found) {
  if (p.live[sdk::kLiveSeqs] <= of.seq || p.seq_slot[of.seq] < 0) return false;
  const auto rows = static_cast<uint32_t>(p.seq_row[of.seq + 1] - p.seq_row[of.seq]);
  if (rows > kMostChoosing || rows <= of.i) return false;
  found.row = static_cast<uint32_t>(p.seq_row[of.seq]) + of.i;
  if (found.row >= a.rows) return false;
  found.slot = static_cast<uint32_t>(p.seq_slot[of.seq]);
  found.before = pages_before(static_cast<uint32_t>(p.pos[found.row]), a.page, a.pages);
  found.bounds = p.bounds + ((size_t{of.seq} * a.rows_of_sequence + of.i) * a.heads + of.head) * a.pages;
  return true;
}
__device__ bool chooses_all(const ChooseArgs& a, const Choice& c) {
  return c.before <= a.most_pages - kAlways;
}

// A warp takes kPagesOfWarp pages of a KV head for a row; a lane has elements d, d + 32, ... The query heads that choose
// together are added up first: what they have above 0 meets the greatest elements, what they have below the least.
template <class E>
__global__ void __launch_bounds__(kThreads)
    bound_kernel(const __grid_constant__ ChooseArgs a, const __grid_constant__ ChoosePointers p) {
  constexpr uint32_t kOwn = 4;  // elements of a lane at a time
  cuda::wait();
  const uint32_t head = blockIdx.y, lane = threadIdx.x % 32;
  Choice c;
  if (!find_choice(a, p, {blockIdx.z / a.rows_of_sequence, blockIdx.z % a.rows_of_sequence, head}, c)) return;
  if (chooses_all(a, c)) return;
  const float* q = p.q + c.row * a.q_row + size_t{head} * a.group * a.dim;
  const uint32_t first = (blockIdx.x * kWarps + threadIdx.x / 32) * kPagesOfWarp;
  if (first >= c.before) return;
  const E* summaries =
      static_cast<const E*>(p.summaries) + ((size_t{c.slot} * a.heads + head) * a.pages + first) * 2 * a.dim;
  float sum[kPagesOfWarp] = {};
  for (uint32_t from = 0; from < a.dim; from += 32 * kOwn) {
    float above[kOwn] = {}, below[kOwn] = {};
    for (uint32_t g = 0; g < a.group; ++g) {
#pragma unroll
      for (uint32_t i = 0; i < kOwn; ++i) {
        const uint32_t d = from + lane + 32 * i;
        const float x = d < a.dim ? q[g * a.dim + d] : 0;
        above[i] += fmaxf(x, 0);
        below[i] += fminf(x, 0);
      }
    }
#pragma unroll
    for (uint32_t page = 0; page < kPagesOfWarp; ++page) {
      const E* greatest = summaries + size_t{page} * 2 * a.dim;
#pragma unroll
      for (uint32_t i = 0; i < kOwn; ++i) {
        const uint32_t d = from + lane + 32 * i;
        if (first + page >= c.before || d >= a.dim) continue;
        sum[page] += above[i] * cuda::to_float(greatest[d]) + below[i] * cuda::to_float(greatest[a.dim + d]);
      }
    }
  }
#pragma unroll
  for (uint32_t page = 0; page < kPagesOfWarp; ++page) {
    const float bound = cuda::warp_sum(sum[page]);
    if (lane == 0 && first + page < c.before) c.bounds[first + page] = order_of(__float_as_uint(bound));
  }
}

// This is the block's shared memory.
struct Shared {
  uint32_t count[256];                    // bounds by the eight bits at hand
  uint32_t of_warp[kWarps];               // the sums of the counts of 32 neighbours
  uint32_t known, left;                   // bits that the last chosen bound has; how many with these are chosen
  uint32_t above[kWarps], equal[kWarps];  // how many pages of a turn are above, and equal, by warp
};

// Finds the bound of the last page that is chosen, and how many pages with just
// that bound are. The whole block calls this.
__device__ void find_last(const Choice& c, uint32_t most, Shared& s) {
  if (threadIdx.x == 0) {
    s.known = 0;
    s.left = most;
  }
  static_assert(kThreads == 256);
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (uint32_t i = threadIdx.x; i < 256; i += kThreads) s.count[i] = 0;
    __syncthreads();
    const uint32_t known = s.known, mask = shift == 24 ? 0 : ~0u << (shift + 8);
    for (uint32_t page = threadIdx.x; page < c.before; page += kThreads) {
      const uint32_t bound = c.bounds[page];
      if ((bound & mask) == known) atomicAdd(&s.count[bound >> shift & 255], 1u);
    }
    __syncthreads();
    // The last chosen one has the greatest eight bits that no fewer bounds reach than are left to choose. A thread has
    // the bounds with 255 - threadIdx.x.
    const uint32_t bits = 255 - threadIdx.x, own = s.count[bits], wanted = s.left;
    uint32_t through = own;  // so many have these bits or greater ones
    for (uint32_t d = 1; d < 32; d *= 2) {
      const uint32_t before = __shfl_up_sync(~0u, through, d);
      if (threadIdx.x % 32 >= d) through += before;
    }
    if (threadIdx.x % 32 == 31) s.of_warp[threadIdx.x / 32] = through;
    __syncthreads();
    for (uint32_t w = 0; w < threadIdx.x / 32; ++w) through += s.of_warp[w];
    if (through >= wanted && through - own < wanted) {
      s.left = wanted - (through - own);
      s.known = known | bits << shift;
    }
    __syncthreads();
  }
}

// Appends the chosen ones of the pages before the newest to a list, in order. The whole block calls this.
__device__ void list_largest(const Choice& c, int32_t* list, Shared& s) {
  const uint32_t last = s.known, left = s.left, warp = threadIdx.x / 32, below = (1u << threadIdx.x % 32) - 1;
  uint32_t above_before = 0, equal_before = 0;
  for (uint32_t turn = 0; turn < c.before; turn += kThreads) {
    const uint32_t page = turn + threadIdx.x;
    const bool above = page < c.before && c.bounds[page] > last, equal = page < c.before && c.bounds[page] == last;
    const uint32_t aboves = __ballot_sync(~0u, above), equals = __ballot_sync(~0u, equal);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      s.above[warp] = __popc(aboves);
      s.equal[warp] = __popc(equals);
    }
    __syncthreads();
    uint32_t above_here = above_before + __popc(aboves & below), equal_here = equal_before + __popc(equals & below);
    for (uint32_t w = 0; w < kWarps; ++w) {
      above_here += w < warp ? s.above[w] : 0;
      equal_here += w < warp ? s.equal[w] : 0;
      above_before += s.above[w];
      equal_before += s.equal[w];
    }
    if (above || (equal && equal_here < left)) list[above_here + min(equal_here, left)] = static_cast<int32_t>(page);
  }
}

// A block is a KV head of a sequence.
__global__ void __launch_bounds__(kThreads)
    choose_kernel(const __grid_constant__ ChooseArgs a, const __grid_constant__ ChoosePointers p) {
  __shared__ Shared shared;
  cuda::wait();
  const uint32_t head = blockIdx.x, seq = blockIdx.y;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto slot = static_cast<uint32_t>(p.seq_slot[seq]);
  if (threadIdx.x == 0) p.summarized[size_t{slot} * a.heads + head] = p.kv_len[slot];
  const auto list_of = [&](uint32_t row) { return p.chosen + (size_t{row} * a.heads + head) * (1 + a.most_pages); };
  const auto first = static_cast<uint32_t>(p.seq_row[seq]),
             end = min(static_cast<uint32_t>(p.seq_row[seq + 1]), a.rows);
  if (end - first > kMostChoosing) {
    for (uint32_t row = first + threadIdx.x; row < end; row += kThreads) list_of(row)[0] = -1;
    return;
  }
  Choice c;
  for (uint32_t i = 0; find_choice(a, p, {seq, i, head}, c); ++i) {
    int32_t* list = list_of(c.row);
    const uint32_t n = min(c.before, a.most_pages - kAlways);
    if (chooses_all(a, c)) {
      for (uint32_t page = threadIdx.x; page < n; page += kThreads) list[1 + page] = static_cast<int32_t>(page);
    } else {
      __syncthreads();
      find_last(c, n, shared);
      list_largest(c, list + 1, shared);
    }
    if (threadIdx.x != 0) continue;
    const uint32_t own = static_cast<uint32_t>(p.pos[c.row]) / a.page;
    list[0] = static_cast<int32_t>(n + own - c.before + 1);
    for (uint32_t page = c.before; page <= own; ++page) list[1 + n + page - c.before] = static_cast<int32_t>(page);
  }
}

void summarize(const SummaryArgs& a, const cuda::Launch& l) {
  const SummaryPointers p{.keys = l.ptr<void>(kKeys),
                          .cell_pages = l.ptr<const int32_t>(kCellPages),
                          .summaries = l.ptr<void>(kSummariesOf),
                          .summarized = l.ptr<const int32_t>(kSummarizedBefore),
                          .live = l.ptr<const uint32_t>(kSummaryLive),
                          .seq_slot = l.ptr<const int32_t>(kSummarySeqSlot),
                          .seq_row = l.ptr<const int32_t>(kSummarySeqRow),
                          .kv_len = l.ptr<const int32_t>(kSummaryKvLen)};
  cuda::with_element(a.kv.k.codec, [&]<class E>(E) {
    l(&summarize_kernel<E>, {.blocks = {a.kv.heads, a.seqs, kSummaryBlocks}, .threads = {kThreads}}, a, p);
  });
}

ChoosePointers pointers(const cuda::Launch& l) {
  return {.q = l.ptr<const float>(kQ),
          .summaries = l.ptr<const void>(kSummaries),
          .summarized = l.ptr<int32_t>(kSummarized),
          .chosen = l.ptr<int32_t>(kChosen),
          .live = l.ptr<const uint32_t>(kLive),
          .pos = l.ptr<const int32_t>(kPos),
          .seq_slot = l.ptr<const int32_t>(kSeqSlot),
          .seq_row = l.ptr<const int32_t>(kSeqRow),
          .kv_len = l.ptr<const int32_t>(kKvLen),
          .bounds = l.ptr<uint32_t>(kBounds)};
}

void bound(const ChooseArgs& a, const cuda::Launch& l) {
  constexpr uint32_t kPagesOfBlock = kWarps * kPagesOfWarp;
  const uint32_t blocks = (a.pages + kPagesOfBlock - 1) / kPagesOfBlock;
  cuda::with_element(a.codec, [&]<class E>(E) {
    l(&bound_kernel<E>, {.blocks = {blocks, a.heads, a.seqs * a.rows_of_sequence}, .threads = {kThreads}}, a,
      pointers(l));
  });
}

void choose(const ChooseArgs& a, const cuda::Launch& l) {
  l(&choose_kernel, {.blocks = {a.heads, a.seqs}, .threads = {kThreads}}, a, pointers(l));
}

}  // namespace

void emit_summarize(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const SummaryArgs& args) {
  cuda::emit<summarize>(r, {.name = "summarize", .operands = operands, .chunks = {}, .cost = cost}, args);
}

void emit_choose(sdk::Recorder& r, std::vector<tenon_operand> operands, const tenon_cost& cost,
                 const ChooseArgs& args) {
  const tenon_tensor t = sdk::tensor(TENON_U32, {args.seqs, args.rows_of_sequence, args.heads, args.pages});
  operands.resize(kChooseWithBounds);
  operands[kBounds] = {r.temp(t), TENON_WRITE};
  std::vector<tenon_operand> own = operands;
  own[kSummarized] = own[kChosen] = own[kQ];
  cuda::emit<bound>(r, {.name = "bound", .operands = own, .chunks = {}, .cost = cost}, args);
  operands[kBounds].access = TENON_READ;
  operands[kQ] = operands[kSummaries];
  cuda::emit<choose>(r, {.name = "choose", .operands = operands, .chunks = {}}, args);
}

}  // namespace tenon::quest
