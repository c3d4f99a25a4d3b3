// cuda_decode.cu ends with these stages: what a team's warps have made becomes what the team has made, or a result; what
// the blocks of a cluster have made is folded in shared memory; and what clusters have made, through scratch memory.
//
// The order is fixed: a row's bits do not depend on which block is done first.
#pragma once

#include "decode_attend.cuh"
#include "decode_team.cuh"
#include "decode_warp.cuh"
#include "tenon/cuda/barrier.cuh"
#include "tenon/cuda/cluster.cuh"
#include "tenon/cuda/hadamard.cuh"

namespace tenon::flash {

// Some splits of a query together: the maximum, the sum of the weights, and four dimensions of the weighted values.
struct Folded {
  float top, sum, value[4];
};

// This names four dimensions of a query's result, from dimension d on.
struct ResultPlace {
  uint32_t row, head, d;  // the row is that of the step
};
// Lanes that follow each other store a query's result together.
template <class Team>
__device__ __forceinline__ void store_result(const GpuArgs& a, const GpuPointers& p, const ResultPlace& at,
                                             Folded& all) {
  if constexpr (Team::kRotates) {
    if (a.rotates != 0) cuda::rotate_head<Team::kDim>(all.value);
  }
  const ResultFactors factors = result_factors(a, p, {at.row, at.head, all.top, all.sum}, at.d == 0);
  float* to = p.out + at.row * a.out_row + at.head * a.kv.v.dim + at.d;
  for (uint32_t i = 0; i < 4; ++i) to[i] = result_of(factors, all.value[i], to[i]);
}

// Folds what some splits have made, in order. take(i, sums, value) reads split i's maximum and sum and four dimensions;
// kAtOnce of these loads are under way together.
template <uint32_t kAtOnce, class Take>
__device__ __forceinline__ void fold(uint32_t count, Folded& all, const Take& take) {
  all.top = kNothing;
  all.sum = 0;
  for (float& v : all.value) v = 0;
  for (uint32_t first = 0; first < count; first += kAtOnce) {
    float2 sums[kAtOnce];  // (maximum, sum)
    float4 values[kAtOnce];
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      take(min(first + k, count - 1), sums[k], values[k]);
      if (first + k >= count) sums[k] = {kNothing, 0};
    }
    float higher = all.top;
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) higher = fmaxf(higher, sums[k].x);
    if (higher == kNothing) continue;
    const float shrink = exp2_approx(all.top - higher);
    all.top = higher;
    all.sum *= shrink;
    for (float& v : all.value) v *= shrink;
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const float weight = exp2_approx(sums[k].x - all.top);
      all.sum += sums[k].y * weight;
      all.value[0] += values[k].x * weight;
      all.value[1] += values[k].y * weight;
      all.value[2] += values[k].z * weight;
      all.value[3] += values[k].w * weight;
    }
  }
}

// ---- a lane's share of its two queries, whichever way round the products were ----
template <uint32_t D>
__device__ __forceinline__ uint32_t query_of_lane(const DecodeState<D>&, uint32_t i) {
  return threadIdx.x % 32 / 4 + 8 * i;
}
template <uint32_t D>
__device__ __forceinline__ uint32_t query_of_lane(const WarpState<D>&, uint32_t i) {
  return threadIdx.x % 4 * 2 + i;
}
// Sums over the lanes that share the query.
template <uint32_t D>
__device__ __forceinline__ float sum_of_query(const DecodeState<D>& state, uint32_t i) {
  return row_sum(state.sum[i]);
}
template <uint32_t D>
__device__ __forceinline__ float sum_of_query(const WarpState<D>& state, uint32_t i) {
  return column_sum(state.sum[i]);
}
// Leaves the values of the lane's query i in the query's row of partials, times a factor.
template <class Team, uint32_t D>
__device__ __forceinline__ void leave_values(const DecodeState<D>& state, uint32_t i, float factor, float* row) {
#pragma unroll
  for (uint32_t n = 0; n < D / 8; ++n) {
    *reinterpret_cast<float2*>(row + n * 8 + threadIdx.x % 4 * 2) = {state.out[n][2 * i] * factor,
                                                                     state.out[n][2 * i + 1] * factor};
  }
}
template <class Team, uint32_t D>
__device__ __forceinline__ void leave_values(const WarpState<D>& state, uint32_t i, float factor, float* row) {
  factor *= value_unit<Team>();
#pragma unroll
  for (uint32_t n = 0; n < D / 16; ++n) {
    for (uint32_t k = 0; k < 2; ++k) row[lane_dim<Team>(n, k)] = state.out[n][2 * k + i] * factor;
  }
}

// ---- a team of a block's four warps: adds their shares and stores what the split makes of each query ----
template <class Team, class State>
__device__ __forceinline__ void gather(const Team& t, State& state) {
  using Shape = typename Team::Shape;
  constexpr uint32_t D = Team::kDim;
  const GpuArgs& a = t.a;
  const uint32_t warp = Team::warp_of_team();
  __shared__ float tops[kWarps][kQueries], sums[kWarps][kQueries];
  for (uint32_t i = 0; i < 2; ++i) {
    // Lanes that share a query store the same.
    const uint32_t q = query_of_lane(state, i);
    tops[warp][q] = state.top[i];
    sums[warp][q] = sum_of_query(state, i);
  }
  cuda::wait_copies<0>();
  __syncthreads();

  // Each warp leaves its values, for the maximum of all.
  auto* partials = reinterpret_cast<float*>(t.memory.tiles);  // [warp][kMostQueries][kPartialRow]
  const auto highest = [&](uint32_t q) { return fmaxf(fmaxf(tops[0][q], tops[1][q]), fmaxf(tops[2][q], tops[3][q])); };
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t q = query_of_lane(state, i);
    if (q >= t.w.queries) continue;
    const float shrink = state.top[i] == kNothing ? 0 : exp2_approx(state.top[i] - highest(q));
    leave_values<Team>(state, i, shrink, partials + (warp * Shape::kMostQueries + q) * Shape::kPartialRow);
  }
  __syncthreads();

  // A thread adds four dimensions of a query.
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < t.w.queries * (D / 4); i += kThreads) {
    const uint32_t q = i / (D / 4), d = i % (D / 4) * 4, count = t.memory.queries[q].count;
    if (d >= a.kv.v.dim || t.split >= count) continue;
    Folded all{highest(q), 0, {}};
#pragma unroll
    for (uint32_t k = 0; k < kWarps; ++k) {
      const auto v =
          *reinterpret_cast<const float4*>(partials + (k * Shape::kMostQueries + q) * Shape::kPartialRow + d);
      all.value[0] += v.x;
      all.value[1] += v.y;
      all.value[2] += v.z;
      all.value[3] += v.w;
      all.sum += tops[k][q] == kNothing ? 0 : sums[k][q] * exp2_approx(tops[k][q] - all.top);
    }
    if (count == 1) {
      store_result<Team>(a, t.p, {t.w.first_row + t.memory.queries[q].row, t.memory.queries[q].head, d}, all);
    } else {
      *reinterpret_cast<float4*>(t.result().values[q] + d) = {all.value[0], all.value[1], all.value[2], all.value[3]};
      if (d == 0) t.result().sums[q] = {all.top, all.sum};
    }
  }
}

// ---- scratch: of each cluster of the grid and each query v_dim floats, and after them all the maxima and sums ----
struct Partials {
  float* values;
  float2* sums;
  uint32_t clusters, queries, dim;
  __device__ Partials(const GpuArgs& a, float* scratch)
      : values(scratch), clusters(a.most_splits / a.cluster), queries(queries_of_team(a)), dim(a.kv.v.dim) {
    sums = reinterpret_cast<float2*>(scratch + uint64_t{gridDim.x} * gridDim.y * clusters * queries * dim);
  }
  // Returns the number, among all, of a query of this block's team in a cluster.
  __device__ uint64_t at(uint32_t cluster, uint32_t q) const {
    return ((uint64_t{blockIdx.y} * gridDim.x + blockIdx.x) * clusters + cluster) * queries + q;
  }
};

// ---- a cluster: folds what its splits have made; results, or partial ones if there are other clusters ----
template <class Team>
__device__ void fold_cluster(const Team& t) {
  constexpr uint32_t D = Team::kDim;
  const GpuArgs& a = t.a;
  const uint32_t rank = t.split % a.cluster, first = t.split - rank;
  const auto cluster = cuda::this_cluster();
  cluster.sync();
#pragma unroll 1
  for (uint32_t i = rank * kThreads + threadIdx.x; i < t.w.queries * (D / 4); i += a.cluster * kThreads) {
    const uint32_t q = i / (D / 4), d = i % (D / 4) * 4, count = t.memory.queries[q].count;
    if (d >= a.kv.v.dim || count == 1 || first >= count) continue;
    Folded all;
    fold<2>(min(count - first, a.cluster), all, [&](uint32_t other, float2& sums, float4& values) {
      const SplitResult<D>& theirs = *cluster.map_shared_rank(&t.result(), other);
      sums = theirs.sums[q];
      values = *reinterpret_cast<const float4*>(theirs.values[q] + d);
    });
    if (count <= a.cluster) {
      store_result<Team>(a, t.p, {t.w.first_row + t.memory.queries[q].row, t.memory.queries[q].head, d}, all);
    } else {
      const Partials partials(a, t.memory.scratch);
      const uint64_t at = partials.at(first / a.cluster, q);
      *reinterpret_cast<float4*>(partials.values + at * a.kv.v.dim + d) = {all.value[0], all.value[1], all.value[2],
                                                                           all.value[3]};
      if (d == 0) partials.sums[at] = {all.top, all.sum};
    }
  }
  cluster.sync();
}

// ---- the last of a row's clusters: folds what all clusters have made ----
template <class Team>
__device__ void combine(const GpuArgs& a, const GpuPointers& p, const Work& w, float* scratch) {
  constexpr uint32_t D = Team::kDim;
  const Partials partials(a, scratch);
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < w.queries * (D / 4); i += kThreads) {
    const uint32_t q = i / (D / 4), d = i % (D / 4) * 4, row = w.row_of(a, q);
    const uint32_t pos = static_cast<uint32_t>(w.pos[row]), count = cut(a, pos).count(past_seen(a, pos));
    if (d >= a.kv.v.dim || count <= a.cluster) continue;
    Folded all;
    fold<8>((count + a.cluster - 1) / a.cluster, all, [&](uint32_t other, float2& sums, float4& values) {
      const uint64_t at = partials.at(other, q);
      sums = __ldcg(partials.sums + at);
      values = __ldcg(reinterpret_cast<const float4*>(partials.values + at * a.kv.v.dim + d));
    });
    store_result<Team>(a, p, {w.first_row + row, w.head_of(a, q), d}, all);
  }
}
// Returns true in the block that comes last of `most`, one of each cluster; it sees what all stored before they met.
__device__ inline bool is_last(uint32_t* counter, uint32_t most) {
  __shared__ uint32_t before;
  __syncthreads();
  if (threadIdx.x == 0) {
    before = cuda::arrive_at_counter(counter);
    if (before + 1 == most) *counter = 0;
  }
  __syncthreads();
  return before + 1 == most;
}

}  // namespace tenon::flash
