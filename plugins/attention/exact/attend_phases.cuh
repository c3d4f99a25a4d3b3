// The phases of attend_kernel (exact.cuh) after a warp has the scores of some cells, in their order:
// weigh, add values, leave the warp's sums, join the warps, fold the chunks, write. All are inlined; the
// machine code is that of one function, and it depends on where the kernel has its variables, so these
// are handed over as structs of references.
#pragma once

#include "seen.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::exact {

inline constexpr uint32_t kMostDim = 256, kPerLane = kMostDim / 32;

// This is a warp's share of a query head's result, in the lanes' registers: the softmax over the cells that it has
// taken, as sums of weights relative to the greatest score so far.
struct WarpSums {
  uint32_t warp, lane;     // the thread's
  float& top;              // the greatest score
  float& sum;              // of the weights
  float (&out)[kPerLane];  // of the weighted values, in the lane's dimensions d = lane + 32 i
};
// This holds the same of all warps, in shared memory.
struct BlockSums {
  float (&values)[kWarps][kMostDim];
  float (&tops)[kWarps];
  float (&sums)[kWarps];
};

// Returns the greater one, or NaN if one is NaN, which fmaxf() would pass over.
__device__ __forceinline__ float greater(float a, float b) {
  float x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}

// The scores of kAtOnce cells become weights, and NaN makes NaN of all that comes of them. Returns false if the warp has
// seen no cell yet.
__device__ __forceinline__ bool weigh(float (&weight)[kAtOnce], const WarpSums& s) {
  float higher = s.top;
#pragma unroll
  for (const float score : weight) higher = greater(higher, score);
  if (higher == -INFINITY) return false;
  const float shrink = s.top == -INFINITY ? 0 : expf(s.top - higher);
  s.top = higher;
#pragma unroll
  for (float& score : weight) score = expf(score - higher);
  s.sum = s.sum * shrink + ((weight[0] + weight[1]) + (weight[2] + weight[3]));
#pragma unroll
  for (float& o : s.out) o *= shrink;
  return true;
}

// Leaves the scores of the cells that are seen, by cell.
__device__ __forceinline__ void leave_scores(const Spots& spots, const float (&score)[kAtOnce], float* scores) {
#pragma unroll
  for (uint32_t j = 0; j < kAtOnce; ++j) {
    if (cuda::lane_id() == j && spots.seen[j]) scores[spots.cell[j]] = score[j];
  }
}

// Adds the values of kAtOnce cells times their weights. cached: (cells, v.dim).
template <class C>
__device__ __forceinline__ void add_values(const Args& a, const KvCells& cached, const Spots& spots,
                                           const float (&weight)[kAtOnce], const WarpSums& s) {
#pragma unroll
  for (uint32_t j = 0; j < kAtOnce; ++j) {
    if (!spots.seen[j]) continue;
    const auto* value = reinterpret_cast<const typename C::Stored*>(cached.at(spots.cell[j]));
    if (value == nullptr) continue;
    const float scale = cached.scale(spots.cell[j]);
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      const uint32_t d = s.lane + 32 * i;
      if (d < a.kv.v.dim) s.out[i] += weight[j] * C::decode(sdk::kv_code<C>(value, d), scale);
    }
  }
}

// Each warp leaves its sums for the block.
__device__ __forceinline__ void leave(const WarpSums& s, const BlockSums& to) {
  __syncthreads();
  if (s.lane == 0) {
    to.tops[s.warp] = s.top;
    to.sums[s.warp] = s.sum;
  }
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) to.values[s.warp][s.lane + 32 * i] = s.out[i];
  __syncthreads();
}

// These are the sums of some chunks of a query head: a thread has dimensions threadIdx.x + kThreads * i.
struct HeadSums {
  float top = -INFINITY, sum = 0, value[kMostDim / kThreads] = {};
};
// Returns those of a chunk, of what its warps have left.
__device__ __forceinline__ HeadSums join_warps(const BlockSums& from) {
  HeadSums s;
  for (const float other : from.tops) s.top = greater(s.top, other);
  for (uint32_t w = 0; w < kWarps; ++w) {
    const float shrink = from.tops[w] == -INFINITY ? 0 : expf(from.tops[w] - s.top);
    s.sum += from.sums[w] * shrink;
#pragma unroll
    for (uint32_t i = 0; i < kMostDim / kThreads; ++i) {
      s.value[i] += from.values[w][threadIdx.x + kThreads * i] * shrink;
    }
  }
  return s;
}
// Adds a later chunk's.
__device__ __forceinline__ void fold(HeadSums& all, const HeadSums& next) {
  if (next.top == -INFINITY) return;
  const float highest = greater(all.top, next.top), before = expf(all.top - highest), own = expf(next.top - highest);
  all.top = highest;
  all.sum = all.sum * before + next.sum * own;
#pragma unroll
  for (uint32_t i = 0; i < kMostDim / kThreads; ++i) all.value[i] = all.value[i] * before + next.value[i] * own;
}

// ---- where several blocks have a row's chunks: each leaves its own, and the last one folds all, in their order ----
// Memory has, by row, query head and chunk, v.dim values, the greatest score and the sum.
class Partials {
 public:
  __device__ __forceinline__ Partials(const Args& a, float* scratch, size_t row_head)
      : dim_(a.kv.v.dim), first_(scratch + row_head * a.most_chunks * (dim_ + 2)) {}
  static uint64_t bytes(const Args& a) {
    return uint64_t{a.rows} * a.q_heads * a.most_chunks * (a.kv.v.dim + 2) * sizeof(float);
  }
  __device__ __forceinline__ void put(uint32_t chunk, const HeadSums& s) const {
    float* to = first_ + size_t{chunk} * (dim_ + 2);
#pragma unroll
    for (uint32_t i = 0; i < kMostDim / kThreads; ++i) {
      if (const uint32_t d = threadIdx.x + kThreads * i; d < dim_) to[d] = s.value[i];
    }
    if (threadIdx.x == 0) to[dim_] = s.top;
    if (threadIdx.x == 0) to[dim_ + 1] = s.sum;
  }
  __device__ __forceinline__ HeadSums take(uint32_t chunk) const {
    const float* from = first_ + size_t{chunk} * (dim_ + 2);
    HeadSums s{__ldcg(from + dim_), __ldcg(from + dim_ + 1)};
#pragma unroll
    for (uint32_t i = 0; i < kMostDim / kThreads; ++i) {
      if (const uint32_t d = threadIdx.x + kThreads * i; d < dim_) s.value[i] = __ldcg(from + d);
    }
    return s;
  }

 private:
  uint32_t dim_;
  float* first_;
};

// ---- a query head's result ----
struct RowHead {
  uint32_t row, head;
};
// Adds the head's learned sink, which weighs no value.
__device__ __forceinline__ void add_sink(const Pointers& p, uint32_t head, HeadSums& s) {
  if (p.sinks == nullptr) return;
  HeadSums sink;
  sink.top = p.sinks[head];
  sink.sum = 1;
  fold(s, sink);
}
// Writes the result, (v.dim), and leaves its softmax for the other half of a view with a tail and for weights_kernel, if
// they read it. The other half may have come before: then it has left its softmax, and the two are joined.
__device__ __forceinline__ void write(const Args& a, const Pointers& p, const RowHead& at, const HeadSums& s) {
  const auto [row, head] = at;
  float own = 1, before = 0, sum = s.sum;
  if (a.joining == attention::kJoins) {
    constexpr float kLn2 = 0.693147180559945F;
    const float left = p.half_sums[row * a.q_heads + head] * kLn2, highest = fmaxf(s.top, left);
    own = s.top == -INFINITY ? 0 : expf(s.top - highest);
    before = expf(left - highest);
    sum = s.sum * own + before;
  }
#pragma unroll
  for (uint32_t i = 0; i < kMostDim / kThreads; ++i) {
    const uint32_t d = threadIdx.x + kThreads * i;
    if (d >= a.kv.v.dim) break;
    float& out_d = p.out[row * a.out_row + head * a.kv.v.dim + d];
    out_d = (a.joining == attention::kJoins ? s.value[i] * own + out_d * before : s.value[i]) / sum;
  }
  if (threadIdx.x != 0) return;
  if (a.joining == attention::kLeaves) {
    constexpr float kLog2E = 1.44269504088896F;
    p.half_sums[row * a.q_heads + head] = s.top * kLog2E + log2f(s.sum);
  }
  if (a.weight_rows != 0) p.stats[row * a.q_heads + head] = {s.top, sum};
}

}  // namespace tenon::exact
