// The inner loop of cuda_decode.cu where a warp is a team: as decode_attend.cuh, but with queries as the columns of the
// products, of which there are eight, so that a lane has half as many sums and four blocks fit on a multiprocessor.
//
//   scores  (keys 16, queries 8) = K (keys 16, dimensions 16) Q^T (dimensions 16, queries 8)
//   values  (dimensions 16, queries 8) += V^T (dimensions 16, keys 16) weights (keys 16, queries 8)
//
// In a 16 x 8 product, lane 4 g + t has rows g and g + 8 (keys, or dimensions) and columns 2t and 2t + 1 (queries). Sum
// 2 * row + column is of row g + 8 * row and query 2t + column. A turn is two tiles of 16 keys.
#pragma once

#include "decode_attend.cuh"

namespace tenon::flash {

// A lane's share of its two queries.
template <uint32_t D>
struct WarpState {
  float top[2] = {kNothing, kNothing};  // by column: the greatest score
  float sum[2] = {0, 0};                // by column: of the lane's weights
  float out[D / 16][4] = {};            // [16 dimensions][an mma's sums]: of weighted values
};

// Over the eight lanes that share a column of an mma's sums.
__device__ __forceinline__ float column_max(float x) {
  for (uint32_t d = 4; d < 32; d *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
  return x;
}
__device__ __forceinline__ float column_sum(float x) {
  for (uint32_t d = 4; d < 32; d *= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}

// The B fragments of the queries (dimensions 16, queries 8). A query that there is not has zeros.
template <class Team>
struct QueryColumns {
  static constexpr uint32_t D = Team::kDim;
  uint32_t b[D / 16][2];  // [16 dimensions]
  __device__ __forceinline__ explicit QueryColumns(const Team& t) {
    const uint32_t query = threadIdx.x % 8, piece = threadIdx.x % 32 / 8;
    const bool there = query < Team::Shape::query_rows(t.a);
    const uint32_t tile = cuda::shared_address(there ? t.query_tile() : t.zeros());
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k += 2) {
      uint32_t both[4];
      cuda::load_matrices(both, tile + (there ? tile_offset<D>(query, k * 2 + piece) : 0));
      b[k][0] = both[0];
      b[k][1] = both[1];
      b[k + 1][0] = both[2];
      b[k + 1][1] = both[3];
    }
  }
};

// Products of one tile of keys and the queries.
template <class Team>
__device__ __forceinline__ void score_tile(uint32_t keys, const QueryColumns<Team>& q, float (&x)[4]) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
  float s[2][4] = {};  // [even or odd 16 dimensions][an mma's sums]
#pragma unroll
  for (uint32_t k = 0; k < D / 16; ++k) {
    uint32_t a[4];
    cuda::load_matrices(a, keys + rows_first<D>(0, k * 2));
    cuda::mma<E>(s[k % 2], a, q.b[k][0], q.b[k][1]);
  }
#pragma unroll
  for (uint32_t e = 0; e < 4; ++e) x[e] = s[0][e] + s[1][e];
}

// Scores of the turn that begins with `tile` become weights; state.top and state.sum go on. shrink, by column: by how much
// what was summed up before shrinks.
template <class Team>
__device__ __forceinline__ void weigh(const Team& t, uint32_t tile, const SeenRange& range, float (&x)[2][4],
                                      WarpState<Team::kDim>& state, float (&shrink)[2]) {
  float higher[2] = {state.top[0], state.top[1]};
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t j = i / 4, e = i % 4, column = e % 2;
    const uint32_t token = t.token_of(tile + j) + threadIdx.x % 32 / 4 + e / 2 * 8;
    const bool there = tile + j < t.tiles && token >= range.seen[column] && token < range.past[column];
    if (!there) x[j][e] = kNothing;
    higher[column] = fmaxf(higher[column], x[j][e]);
  }
#pragma unroll
  for (uint32_t column = 0; column < 2; ++column) {
    higher[column] = column_max(higher[column]);
    shrink[column] = state.top[column] == kNothing ? 0 : exp2_approx(state.top[column] - higher[column]);
    state.top[column] = higher[column];
    const float base = higher[column] == kNothing ? 0 : higher[column];
    float added = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      float& v = x[i / 2][i % 2 * 2 + column];
      v = exp2_approx(v - base);
      added += v;
    }
    state.sum[column] = state.sum[column] * shrink[column] + added;
  }
}

// Adds one tile of values, weighted.
template <class Team>
__device__ __forceinline__ void add_tile(uint32_t values, const float (&x)[4], WarpState<Team::kDim>& state) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
  const uint32_t b0 = cuda::transposed(cuda::to_halves<E>(x[0], x[1])),
                 b1 = cuda::transposed(cuda::to_halves<E>(x[2], x[3]));
#pragma unroll
  for (uint32_t n = 0; n < D / 16; ++n) {
    uint32_t a[4];
    cuda::load_matrices_transposed(a, values + pieces_first<D>(0, n * 2));
    cuda::mma<E>(state.out[n], a, b0, b1);
  }
}

// Stores the results of the team's queries, which nobody else works on.
template <class Team>
__device__ __forceinline__ void finish_alone(const Team& t, WarpState<Team::kDim>& state) {
  const uint32_t g = threadIdx.x % 32 / 4;
#pragma unroll
  for (uint32_t column = 0; column < 2; ++column) {
    const float sum = column_sum(state.sum[column]);
    const uint32_t q = threadIdx.x % 4 * 2 + column;
    if (q >= t.w.queries || t.memory.queries[q].count == 0) continue;
    const Query& query = t.memory.queries[q];
    const float weight = 1 / (sum + sink_weight(t.p.sinks, query.head, state.top[column]));
    float* to = t.p.out + (t.w.first_row + query.row) * t.a.out_row + query.head * t.a.kv.v.dim + g;
#pragma unroll
    for (uint32_t d = 0; d < Team::kDim; d += 8) {
      if (d + g < t.a.kv.v.dim) to[d] = state.out[d / 16][d % 16 / 8 * 2 + column] * weight;
    }
  }
}

// The team's split, which is all that its queries see, once prepare_heads() is done.
template <class Team>
__device__ __forceinline__ void attend_alone(const Team& t) {
  const Query* own = t.memory.queries + threadIdx.x % 4 * 2;
  const SeenRange range{{own[0].seen, own[1].seen}, {own[0].past, own[1].past}};
  const ScoreScale scale = score_scale(t.a.scale, t.a.softcap);
  const QueryColumns<Team> q(t);
  WarpState<Team::kDim> state;
  RingReader<Team> ring(t);
#pragma unroll 1
  for (uint32_t tile = 0; tile < t.tiles; tile += 2) {
    const bool two = tile + 1 < t.tiles;
    float x[2][4] = {};  // [tile][an mma's sums]: scores, then weights
    score_tile(ring.next(), q, x[0]);
    if (two) score_tile(ring.next(), q, x[1]);
    scale(x);
    float shrink[2];  // by column
    weigh(t, tile, range, x, state, shrink);
    if (tile > 0) {
#pragma unroll
      for (float(&o)[4] : state.out) {
#pragma unroll
        for (uint32_t e = 0; e < 4; ++e) o[e] *= shrink[e % 2];
      }
    }
    add_tile<Team>(ring.next(), x[0], state);
    if (two) add_tile<Team>(ring.next(), x[1], state);
  }
  cuda::wait_copies<0>();
  finish_alone(t, state);
}

}  // namespace tenon::flash
