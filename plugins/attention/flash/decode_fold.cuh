// cuda_decode.cu ends with these phases: what the warps of a cluster's blocks have made is folded in shared memory, and
// what clusters have made, through scratch memory.
//
// The order is fixed: a row's bits do not depend on which block is done first.
#pragma once

#include "decode_attend.cuh"
#include "decode_team.cuh"
#include "decode_warp.cuh"
#include "halves_result.cuh"
#include "tenon/cuda/barrier.cuh"
#include "tenon/cuda/cluster.cuh"
#include "tenon/cuda/hadamard.cuh"

namespace tenon::flash {

// Some splits of a query have this together.
struct Folded {
  float top, sum;  // the greatest score, and the sum of the weights
  float value[4];  // four dimensions of the weighted values
};

// This names four dimensions of a query's result, from dimension d on.
struct ResultPlace {
  uint32_t row, head, d;  // the row is that of the step
};
// Lanes that follow each other store a query's result together.
template <DecodingTeam Team>
__device__ __forceinline__ void store_result(const GpuArgs& a, const GpuPointers& p, const ResultPlace& at,
                                             Folded& all) {
  if constexpr (Team::kRotates) {
    if (a.rotates != 0) cuda::rotate_head<Team::kDim>(all.value);
  }
  const ResultFactors factors = result_factors(a, p, {at.row, at.head, all.top, all.sum}, at.d == 0);
  if (a.out != Out::kF32) {
    const HalvesResult halves(a, p, at.row, at.head);
    halves.store_pair(at.d, all.value[0] * factors.own, all.value[1] * factors.own);
    halves.store_pair(at.d + 2, all.value[2] * factors.own, all.value[3] * factors.own);
    return;
  }
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
  return cuda::row_sum(state.sum[i]);
}
template <uint32_t D>
__device__ __forceinline__ float sum_of_query(const WarpState<D>& state, uint32_t i) {
  return cuda::column_sum(state.sum[i]);
}
// Says whether the lane is the first of those that share its queries.
template <uint32_t D>
__device__ __forceinline__ bool is_first_of_query(const DecodeState<D>&) {
  return threadIdx.x % 4 == 0;
}
template <uint32_t D>
__device__ __forceinline__ bool is_first_of_query(const WarpState<D>&) {
  return threadIdx.x % 32 < 4;
}
// Calls store(place, two values) for those of the lane's query i; the place is in bytes from the first dimension's.
template <DecodingTeam Team, uint32_t D, class Store>
__device__ __forceinline__ void leave_values(const DecodeState<D>& state, uint32_t i, const Store& store) {
#pragma unroll
  for (uint32_t n = 0; n < D / 8; ++n) {
    const uint32_t d = n * 8 + threadIdx.x % 4 * 2;
    store(d * sizeof(float), {state.out[n][2 * i], state.out[n][2 * i + 1]});
  }
}
template <DecodingTeam Team, uint32_t D, class Store>
__device__ __forceinline__ void leave_values(const WarpState<D>& state, uint32_t i, const Store& store) {
  static_assert(Team::Shape::kCoded, "a lane's two values of 16 dimensions lie side by side");
#pragma unroll
  for (uint32_t n = 0; n < D / 16; ++n) {
    const float unit = value_unit<Team>();
    store(lane_dim<Team>(n, 0) * sizeof(float), {state.out[n][i] * unit, state.out[n][2 + i] * unit});
  }
}

// ---- a warp that is a team, and whose split is all that its queries see ----
// Stores the results of the team's queries. They go through the ring's memory, which the last tile has left, so that
// little code is run once: it would have to be fetched while nothing else is under way.
template <DecodingTeam Team>
__device__ __forceinline__ void finish_alone(const Team& t, const WarpState<Team::kDim>& state) {
  constexpr uint32_t D = Team::kDim;
  static_assert(Team::Shape::kMostQueries * Shares<D>::kRow <= Team::Shape::kRingBytes);
  cuda::wait_copies<0>();
  __syncwarp();
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const float sum = sum_of_query(state, i);
    char* to = t.ring() + query_of_lane(state, i) * Shares<D>::kRow;
    if (is_first_of_query(state)) *reinterpret_cast<float2*>(to + Shares<D>::kSumsAt) = {state.top[i], sum};
#pragma unroll
    for (uint32_t k = 0; k < D / 8; ++k) {
      reinterpret_cast<float*>(to)[lane_dim<Team>(k / 2, k % 2)] = state.out[k / 2][k % 2 * 2 + i] * value_unit<Team>();
    }
  }
  __syncwarp();
#pragma unroll 1
  for (uint32_t i = threadIdx.x % 32; i < t.w.queries * (D / 4); i += 32) {
    const uint32_t d = i % (D / 4) * 4;
    const Query& query = t.memory.queries[i / (D / 4)];
    if (d >= t.a.kv.v.dim || query.count == 0) continue;
    const char* from = t.ring() + i / (D / 4) * Shares<D>::kRow;
    const auto sums = *reinterpret_cast<const float2*>(from + Shares<D>::kSumsAt);
    const auto v = *reinterpret_cast<const float4*>(from + d * sizeof(float));
    Folded all{sums.x, sums.y, {v.x, v.y, v.z, v.w}};
    store_result<Team>(t.a, t.p, {t.w.first_row + query.row, query.head, d}, all);
  }
}

// ---- scratch: of each cluster of the grid and each query v_dim floats, and after them all the maxima and sums ----
struct Partials {
  float* values;
  float2* sums;
  uint32_t clusters, queries, dim;
  __device__ Partials(const GpuArgs& a, float* scratch)
      : values(scratch), clusters(a.most_splits >> a.cluster_log2), queries(queries_of_team(a)), dim(a.kv.v.dim) {
    sums = reinterpret_cast<float2*>(scratch + uint64_t{gridDim.x} * gridDim.y * clusters * queries * dim);
  }
  // Returns the number, among all, of a query of this block's team in a cluster.
  __device__ uint64_t at(uint32_t cluster, uint32_t q) const {
    return ((uint64_t{blockIdx.y} * gridDim.x + blockIdx.x) * clusters + cluster) * queries + q;
  }
};

// ---- the warps of a cluster: each leaves its share of a query in the block that folds it ----
// The blocks whose splits are of the same queries take these in turn. A split that is all that its queries see has its
// block alone.
template <DecodingTeam Team>
class Meeting {
 public:
  using Own = Shares<Team::kDim>;
  // count: so many splits the queries have. number: the block has met others so many times.
  __device__ __forceinline__ Meeting(const Team& t, uint32_t count, uint32_t number)
      : shift_(count > 1 ? t.a.cluster_log2 : 0),
        rank_(t.split & (blocks() - 1)),
        working_(blocks_of(count, t.split - rank_)),
        own_queries_((t.w.queries + blocks() - 1 - rank_) >> shift_),
        parity_(number % 2),
        met_(cuda::shared_address(t.memory.met)),
        own_{t.shares(), Own::queries_of_block(t.a, shift_)} {}
  __device__ __forceinline__ uint32_t rank() const { return rank_; }
  __device__ __forceinline__ bool has_others() const { return cuda::kHasClusters && shift_ != 0; }
  // The block folds so many queries; the i-th of them is number query(i) of the team.
  __device__ __forceinline__ uint32_t own_queries() const { return own_queries_; }
  __device__ __forceinline__ uint32_t query(uint32_t i) const { return (i << shift_) + rank_; }

  // A block opens its memory for shares, and enters that of the others once all have.
  __device__ __forceinline__ void open() const {
    if (has_others()) cuda::this_cluster().arrive();
  }
  __device__ __forceinline__ void enter() const {
    if (!has_others()) return __syncthreads();
    cuda::this_cluster().wait();
  }
  // Leaves the lane's two queries where they are folded.
  template <class State>
  __device__ __forceinline__ void leave(const Team& t, const State& state) const {
    if constexpr (cuda::kHasClusters) {
      const auto store_there = [&](uint32_t q) {
        const uint32_t block = q & (blocks() - 1),
                       to = cuda::address_in_cluster(cuda::shared_address(place_of(q)), block),
                       barrier = cuda::Barrier(met_).in_cluster(block);
        return [=](uint32_t at, float2 v) { cuda::Barrier::store_in_cluster(barrier, to + at, v); };
      };
      if (has_others()) return leave_by(t, state, store_there);
    }
    leave_by(t, state, [&](uint32_t q) {
      return [to = place_of(q)](uint32_t at, float2 v) { *reinterpret_cast<float2*>(to + at) = v; };
    });
  }
  // Waits for the shares of the block's own queries.
  __device__ __forceinline__ void meet() const {
    if constexpr (cuda::kHasClusters) {
      if (has_others()) {
        const cuda::Barrier met(met_);
        if (threadIdx.x == 0) met.arrive_expecting(working_ * kWarps * own_queries_ * Own::kBytes);
        return met.wait(parity_);
      }
    }
    __syncthreads();
  }
  // Returns the sums and four values, from dimension d on, that a warp of the cluster has left of the block's i-th
  // query.
  __device__ __forceinline__ void take(uint32_t warp, uint32_t i, uint32_t d, float2& sums, float4& values) const {
    const char* share = own_.at(warp, i);
    sums = *reinterpret_cast<const float2*>(share + Own::kSumsAt);
    values = *reinterpret_cast<const float4*>(share + d * sizeof(float));
  }
  // Returns how many blocks have a split of queries that have `count`. first: the number of the first block's.
  __device__ __forceinline__ uint32_t blocks_of(uint32_t count, uint32_t first) const {
    return min(count - first, blocks());
  }

 private:
  __device__ __forceinline__ uint32_t blocks() const { return 1u << shift_; }
  // Returns the calling warp's place for a query, in the memory of the block that folds it.
  __device__ __forceinline__ char* place_of(uint32_t q) const {
    return own_.at(rank_ * kWarps + Team::warp_of_team(), q >> shift_);
  }
  // store_of(q) returns how a share of query q is stored.
  template <class State, class StoreOf>
  __device__ __forceinline__ void leave_by(const Team& t, const State& state, const StoreOf& store_of) const {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t q = query_of_lane(state, i);
      const float sum = sum_of_query(state, i);
      if (q >= t.w.queries) continue;
      const auto store = store_of(q);
      if (is_first_of_query(state)) store(Own::kSumsAt, {state.top[i], sum});
      leave_values<Team>(state, i, store);
    }
  }

  const uint32_t shift_, rank_;  // there are 1 << shift_ blocks, of which this is number rank_
  const uint32_t working_;       // so many of them have a split
  const uint32_t own_queries_, parity_, met_;
  const Own own_;
};

// Folds the cluster's shares of the block's queries: results, or partial ones if there are other clusters.
template <DecodingTeam Team>
__device__ __forceinline__ void fold_shares(const Team& t, const Meeting<Team>& meeting) {
  constexpr uint32_t D = Team::kDim;
  const GpuArgs& a = t.a;
  const uint32_t first = t.split - meeting.rank();
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < meeting.own_queries() * (D / 4); i += kThreads) {
    const uint32_t own = i / (D / 4), d = i % (D / 4) * 4, q = meeting.query(own);
    const uint32_t count = t.memory.queries[q].count;
    if (d >= a.kv.v.dim || first >= count) continue;
    Folded all;
    fold<kWarps>(meeting.blocks_of(count, first) * kWarps, all,
                 [&](uint32_t warp, float2& sums, float4& values) { meeting.take(warp, own, d, sums, values); });
    if (count <= blocks_of_cluster(a)) {
      store_result<Team>(a, t.p, {t.w.first_row + t.memory.queries[q].row, t.memory.queries[q].head, d}, all);
    } else {
      const Partials partials(a, t.memory.scratch);
      const uint64_t at = partials.at(first >> a.cluster_log2, q);
      *reinterpret_cast<float4*>(partials.values + at * a.kv.v.dim + d) = {all.value[0], all.value[1], all.value[2],
                                                                           all.value[3]};
      if (d == 0) partials.sums[at] = {all.top, all.sum};
    }
  }
}

// ---- the last of a row's blocks: folds what all clusters have made ----
template <DecodingTeam Team>
__device__ void combine(const GpuArgs& a, const GpuPointers& p, const Work& w, float* scratch) {
  constexpr uint32_t D = Team::kDim, kAtOnce = 16;
  const Partials partials(a, scratch);
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < w.queries * (D / 4); i += kThreads) {
    const uint32_t q = i / (D / 4), d = i % (D / 4) * 4, row = w.row_of(a, q);
    const uint32_t pos = w.pos_of(row), count = cut(a, pos).count(a.past(pos));
    if (d >= a.kv.v.dim || count <= blocks_of_cluster(a)) continue;
    Folded all;
    fold<kAtOnce>(((count - 1) >> a.cluster_log2) + 1, all, [&](uint32_t other, float2& sums, float4& values) {
      const uint64_t at = partials.at(other, q);
      sums = __ldcg(partials.sums + at);
      values = __ldcg(reinterpret_cast<const float4*>(partials.values + at * a.kv.v.dim + d));
    });
    store_result<Team>(a, p, {w.first_row + row, w.head_of(a, q), d}, all);
  }
}

}  // namespace tenon::flash
