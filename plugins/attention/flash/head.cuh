// This prepares one head of a row before the softmax, and finishes it after: where it is, norm, rope.
#pragma once

#include "cuda_ops.h"
#include "softmax.cuh"
#include "tenon/cuda/mma.cuh"
#include "tenon/cuda/warp.cuh"
#include "tiles.cuh"

namespace tenon::flash {

// ---- what a head's sums become ----------------------------------------------------------------------------------------
// Its result is `own` times the sum of its weighted values plus `before` times the result that is there.
struct ResultFactors {
  float own, before;
};
struct HeadSums {
  uint32_t row, head;  // the row is that of the step; the head is one of the query heads
  float top, sum;      // the greatest score in units of log2, and the sum of the weights
};
// `leaves` says that the thread is the one that leaves the sum of a first half.
__device__ __forceinline__ ResultFactors result_factors(const GpuArgs& a, const GpuPointers& p, const HeadSums& s,
                                                        bool leaves) {
  float* left = p.sums + s.row * a.q_heads + s.head;
  if (a.joining != attention::kJoins) {
    const float all = s.sum + sink_weight(p.sinks, s.head, s.top);
    if (a.joining == attention::kLeaves && leaves) *left = s.top + log2f(all);
    return {s.top == kNothing ? kNoNumber : 1 / all, 0};
  }
  const float log = *left, highest = fmaxf(s.top, log);
  const float own = exp2_approx(s.top - highest), before = exp2_approx(log - highest), all = s.sum * own + before;
  return {own / all, before / all};
}
// x is a sum of weighted values.
__device__ __forceinline__ float result_of(const ResultFactors& f, float x, const float& there) {
  return f.before == 0 ? x * f.own : x * f.own + there * f.before;
}

// ---- where heads are --------------------------------------------------------------------------------------------------
__device__ __forceinline__ const cuda::KvPlane& plane_of(const GpuArgs& a, Side side) {
  return side == Side::kValues ? a.kv.v : a.kv.k;
}
// Returns the cache's keys or values of a KV head of a sequence.
__device__ __forceinline__ cuda::KvRows cached(const GpuArgs& a, const GpuPointers& p, Side side, uint32_t slot,
                                               uint32_t kv_head) {
  return cuda::KvRows({a.kv, plane_of(a, side), side == Side::kValues ? p.values : p.keys, nullptr, p.pages}, slot,
                      kv_head);
}
// Returns where their scales are, a row of one fp16 each.
__device__ __forceinline__ cuda::KvRows cached_scales(const GpuArgs& a, const GpuPointers& p, Side side, uint32_t slot,
                                                      uint32_t kv_head) {
  cuda::KvPlane scale = plane_of(a, side);
  scale.page = scale.scale_page;
  scale.cell = scale.scale_cell;
  scale.head = scale.scale_head;
  return cuda::KvRows({a.kv, scale, side == Side::kValues ? p.value_scales : p.key_scales, nullptr, p.pages}, slot,
                      kv_head);
}
// Returns the zeros of a token's group of keys, in fp16, which the steps follow.
__device__ __forceinline__ const char* cached_channels(const GpuArgs& a, const GpuPointers& p, uint32_t slot,
                                                       uint32_t kv_head, uint32_t token) {
  const auto log2 = [](uint32_t power) { return 31 - static_cast<uint32_t>(__clz(static_cast<int>(power))); };
  const cuda::KvPlane& k = a.kv.k;
  const int64_t page = p.pages[size_t{slot} * a.kv.columns + (token >> log2(a.kv.page_cells))];
  const uint32_t group = (token & (a.kv.page_cells - 1)) >> log2(k.group);
  return static_cast<const char*>(p.key_scales) + page * k.scale_page + kv_head * k.scale_head + group * k.scale_cell;
}
// Returns a head of Q, of the step's row.
__device__ __forceinline__ const float* query_head(const GpuArgs& a, const GpuPointers& p, uint32_t row,
                                                   uint32_t head) {
  return p.q + row * a.q_row + head * a.kv.k.dim;
}
// Returns a head of K or V that is to be appended, of the step's row.
__device__ __forceinline__ const float* new_head(const GpuArgs& a, const GpuPointers& p, Side side, uint32_t row,
                                                 uint32_t kv_head) {
  return p.q + row * a.q_row + a.q_heads * a.kv.k.dim + kv_head * plane_of(a, side).dim +
         (side == Side::kValues ? a.kv.heads * a.kv.k.dim : 0);
}
// Returns the rope's row for a position; nullptr if there is no rope.
__device__ __forceinline__ const float* rope_row(const GpuArgs& a, const GpuPointers& p, uint32_t pos) {
  return a.rotated == 0 ? nullptr : p.rope + int64_t{pos} * a.rotated;
}

// ---- norm and rope ----------------------------------------------------------------------------------------------------
struct HeadSource {
  const float* x;  // (dim)
  uint32_t dim;
  const float* weight;  // the norm's weights; nullptr: there is none
  const float* table;   // the rope's row for the position; nullptr: there is none
};
// A warp norms and turns any head: it calls store(d, value) for every d below dim, which is at most 32 * kPerLane.
template <uint32_t kPerLane, class Store>
__device__ __forceinline__ void prepare_head(const GpuArgs& a, const HeadSource& head, const Store& store) {
  const auto [x, dim, weight, table] = head;
  const sdk::RopePairs pairs{table == nullptr ? 0 : static_cast<uint32_t>(a.rotated), a.pairing};
  const uint32_t lane = threadIdx.x % 32, half = pairs.half();
  // Elements first(p) and second(p) are a pair that turns; from p = half on there is one element, which stays.
  const auto first = [&](uint32_t p) { return p >= half ? p + half : pairs.first(p); };
  const auto second = [&](uint32_t p) { return pairs.second(p); };
  float u[kPerLane], v[kPerLane];
  float2 turn[kPerLane];
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) {
    const uint32_t p = lane + 32 * i;
    u[i] = p < dim - half ? x[first(p)] : 0;
    v[i] = p < half ? x[second(p)] : 0;
    turn[i] = p < half ? reinterpret_cast<const float2*>(table)[p] : float2{1, 0};
  }
  if (weight != nullptr) {
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) sum += u[i] * u[i] + v[i] * v[i];
    sum = cuda::warp_sum(sum);
    const float scale = rsqrtf(sum / static_cast<float>(dim) + a.eps);
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      const uint32_t p = lane + 32 * i;
      if (p < dim - half) u[i] *= scale * weight[first(p)];
      if (p < half) v[i] *= scale * weight[second(p)];
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) {
    const uint32_t p = lane + 32 * i;
    if (p < dim - half) store(first(p), u[i] * turn[i].x - v[i] * turn[i].y);
    if (p < half) store(second(p), u[i] * turn[i].y + v[i] * turn[i].x);
  }
}

// A warp does the rope of heads of D dimensions, of which all turn or none; each lane has
// kOwn elements, those from kOwn * lane on.
template <uint32_t D>
class LaneRope {
 public:
  static constexpr uint32_t kOwn = D / 32;
  __device__ static bool fits(const GpuArgs& a) {
    return a.normed == 0 && a.kv.k.dim == D && a.kv.v.dim == D &&
           (a.rotated == 0 || static_cast<uint32_t>(a.rotated) == D);
  }
  // `table` is the rope's row for the position, or nullptr.
  __device__ void load(const GpuArgs& a, const float* table) {
    const sdk::RopePairs pairs{D, a.pairing};
    halves_ = a.pairing == 0;
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t d = threadIdx.x % 32 * kOwn + i;
      const float2 turn = table == nullptr ? float2{1, 0} : reinterpret_cast<const float2*>(table)[pairs.pair(d)];
      cos_[i] = turn.x;
      sin_[i] = pairs.is_second(d) ? turn.y : -turn.y;
    }
  }
  __device__ void apply(float (&x)[kOwn]) const {
    float other[kOwn];
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) other[i] = halves_ ? __shfl_xor_sync(~0u, x[i], 16) : x[i ^ 1];
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) x[i] = fmaf(other[i], sin_[i], x[i] * cos_[i]);
  }

 private:
  bool halves_ = true;
  float cos_[kOwn], sin_[kOwn];
};

// A lane's elements of a head are loaded from memory, and stored, rounded, to memory or shared memory. Heads lie at
// multiples of 16 bytes.
template <uint32_t D>
__device__ __forceinline__ void load_own(const float* head, float (&x)[D / 32]) {
  const float* from = head + threadIdx.x % 32 * (D / 32);
#pragma unroll
  for (uint32_t i = 0; i < D / 32; i += 2) {
    const auto v = *reinterpret_cast<const float2*>(from + i);
    x[i] = v.x;
    x[i + 1] = v.y;
  }
}
template <cuda::HalfType E, uint32_t D>
struct alignas(D / 16) OwnElements {
  uint32_t word[D / 64];
  __device__ explicit OwnElements(const float (&x)[D / 32]) {
    for (uint32_t i = 0; i < D / 64; ++i) word[i] = cuda::to_halves<E>(x[2 * i], x[2 * i + 1]);
  }
};
template <cuda::HalfType E, uint32_t D>
__device__ __forceinline__ void store_own(const float (&x)[D / 32], E* head) {
  *reinterpret_cast<OwnElements<E, D>*>(head + threadIdx.x % 32 * (D / 32)) = OwnElements<E, D>(x);
}

}  // namespace tenon::flash
