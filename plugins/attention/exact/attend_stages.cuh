// The stages of attend_kernel (exact.cuh) after a warp has the scores of some cells, in their order:
// weigh, add values, leave the warp's sums, join the warps and the halves of a view, write. All are
// inlined; the machine code is that of one function, and it depends on where the kernel has its variables,
// so these are handed over as structs of references.
#pragma once

#include "seen.cuh"

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

// The scores of kAtOnce cells become weights. Returns false if the warp has seen no cell yet.
__device__ __forceinline__ bool weigh(float (&weight)[kAtOnce], const WarpSums& s) {
  float higher = s.top;
#pragma unroll
  for (const float score : weight) higher = fmaxf(higher, score);
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

// Adds the values of kAtOnce cells times their weights. cached: (cells, v.dim).
template <class C>
__device__ __forceinline__ void add_values(const Args& a, const KvCells& cached, const Lanes& lanes,
                                           const float (&weight)[kAtOnce], const WarpSums& s) {
#pragma unroll
  for (uint32_t j = 0; j < kAtOnce; ++j) {
    if (!lanes.seen[j]) continue;
    const auto* value = reinterpret_cast<const typename C::Stored*>(cached.at(lanes.cell[j]));
    if (value == nullptr) continue;
    const float scale = cached.scale(lanes.cell[j]);
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

// This is a query head's softmax over all cells, with the factors of the sums that it is made of.
struct Softmax {
  float top = -INFINITY, sum = 0;
  float shrink[kWarps];       // the warps' sums
  float own = 1, before = 0;  // the sums of this half of a view with a tail, and of the other half, which came before
};
// Joins the softmax of the warps, and that of the head's sink.
__device__ __forceinline__ void join_warps(const Pointers& p, const BlockSums& from, uint32_t head, Softmax& s) {
  for (const float other : from.tops) s.top = fmaxf(s.top, other);
  if (p.sinks != nullptr) {
    const float sink = p.sinks[head];
    s.top = fmaxf(s.top, sink);
    s.sum = expf(sink - s.top);
  }
  for (uint32_t w = 0; w < kWarps; ++w) {
    s.shrink[w] = from.tops[w] == -INFINITY ? 0 : expf(from.tops[w] - s.top);
    s.sum += from.sums[w] * s.shrink[w];
  }
}
// Joins the softmax of the other half of a view with a tail, where that half came before and left it.
__device__ __forceinline__ void join_halves(const Args& a, const Pointers& p, uint32_t row, uint32_t head, Softmax& s) {
  if (a.joining != attention::kJoins) return;
  constexpr float kLn2 = 0.693147180559945F;
  const float left = p.half_sums[row * a.q_heads + head] * kLn2, highest = fmaxf(s.top, left);
  s.own = s.top == -INFINITY ? 0 : expf(s.top - highest);
  s.before = expf(left - highest);
  s.sum = s.sum * s.own + s.before;
}

struct RowHead {
  uint32_t row, head;
};
// Writes a query head's result, (v.dim), and leaves its softmax for the other half
// and for weights_kernel, if they read it.
__device__ __forceinline__ void write(const Args& a, const Pointers& p, const RowHead& at, const BlockSums& from,
                                      const Softmax& s) {
  const auto [row, head] = at;
  for (uint32_t d = threadIdx.x; d < a.kv.v.dim; d += blockDim.x) {
    float value = 0;
    for (uint32_t w = 0; w < kWarps; ++w) value += from.values[w][d] * s.shrink[w];
    float& out_d = p.out[row * a.out_row + head * a.kv.v.dim + d];
    out_d = (a.joining == attention::kJoins ? value * s.own + out_d * s.before : value) / s.sum;
  }
  if (a.joining == attention::kLeaves && threadIdx.x == 0) {
    constexpr float kLog2E = 1.44269504088896F;
    p.half_sums[row * a.q_heads + head] = s.top * kLog2E + log2f(s.sum);
  }
  if (a.weight_rows != 0 && threadIdx.x == 0) p.stats[row * a.q_heads + head] = {s.top, s.sum};
}

}  // namespace tenon::exact
