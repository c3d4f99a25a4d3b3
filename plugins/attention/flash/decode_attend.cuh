// This is the inner loop of cuda_decode.cu where a block is a team: a warp multiplies the team's queries by its tiles
// of keys, makes weights of the scores, and adds up the weighted values. Two tiles are a turn, so that the two have
// one maximum and the ring is never empty.
//
// In a 16 x 8 product, lane 4 g + t has rows g and g + 8 (queries) and columns 2t and 2t + 1 (keys, or
// dimensions): "row" below is 0 for g and 1 for g + 8. The scores of a turn are x[tile][eight keys][an mma's
// sums], where sum 2 * row + i is of column 2t + i.
#pragma once

#include "decode_team.cuh"
#include "tenon/cuda/mma.cuh"

namespace tenon::flash {

// A lane has this of its two queries.
template <uint32_t D>
struct DecodeState {
  float top[2] = {kNothing, kNothing};  // by row: the greatest score
  float sum[2] = {0, 0};                // by row: it sums the lane's weights
  float shrink[2];                      // by row: the turn at hand shrinks earlier sums by this factor
  float out[D / 8][4] = {};             // [eight dimensions][an mma's sums]: of weighted values
};

// This reads a warp's tiles, in the order of its ring.
template <DecodingTeam Team>
class RingReader {
 public:
  using Shape = typename Team::Shape;
  __device__ __forceinline__ explicit RingReader(const Team& t) : t_(t) {}
  // Waits for the next tile and starts the load of another, into the stage that was read before.
  // Returns the tile's address in shared memory.
  __device__ __forceinline__ uint32_t next() {
    cuda::wait_copies<Shape::kStages - 2>();
    __syncwarp();
    const uint32_t address = cuda::shared_address(t_.ring()) + stage_ * Shape::kTileBytes;
    if (next_ + Shape::kStages - 1 < 2 * t_.tiles) t_.load(next_ + Shape::kStages - 1, free_stage_, 0, t_.end);
    cuda::commit_copies();
    ++next_;
    free_stage_ = stage_;
    stage_ = stage_ + 1 == Shape::kStages ? 0 : stage_ + 1;
    return address;
  }
  // Does the same as that of TurnReader (decode_warp.cuh).
  template <Side, uint32_t, class Use>
  __device__ __forceinline__ void take(uint32_t, bool there, const Use& use) {
    if (there) use(next());
  }

 private:
  const Team& t_;
  uint32_t next_ = 0, stage_ = 0, free_stage_ = Shape::kStages - 1;
};

// This gives the A fragments of the queries (rows 16, D): from registers, or loaded each time if these are too few.
template <uint32_t D, bool kKeep>
struct QueryFragments {
  uint32_t tile;                      // in shared memory
  uint32_t a[kKeep ? D / 16 : 1][4];  // [16 dimensions]
  __device__ __forceinline__ explicit QueryFragments(uint32_t address) : tile(address) {
    if (kKeep) {
#pragma unroll
      for (uint32_t k = 0; k < D / 16; ++k) load(k);
    }
  }
  __device__ __forceinline__ void load(uint32_t k) {
    cuda::load_matrices(a[kKeep ? k : 0], tile + rows_first<D>(0, k * 2));
  }
  __device__ __forceinline__ const uint32_t (&operator()(uint32_t k))[4] {
    if (!kKeep) load(k);
    return a[kKeep ? k : 0];
  }
};

// Multiplies the queries by one or two tiles of keys. A second tile that there is not gets zeros.
template <DecodingTeam Team, class Queries>
__device__ __forceinline__ void score(RingReader<Team>& ring, uint32_t of_turn, Queries& q, float (&x)[2][2][4]) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
#pragma unroll 1
  for (uint32_t j = 0; j < of_turn; ++j) {
    const uint32_t keys = ring.next();
    float s[2][2][4] = {};  // [even or odd 16 dimensions][eight keys][an mma's sums]
#pragma unroll
    for (uint32_t k = 0; k < D / 16; ++k) {
      uint32_t b[4];  // B fragments of keys 0-7, then of keys 8-15
      cuda::load_matrices(b, keys + pieces_first<D>(0, k * 2));
      const auto& a = q(k);
      cuda::mma<E>(s[k % 2][0], a, b[0], b[1]);
      cuda::mma<E>(s[k % 2][1], a, b[2], b[3]);
    }
#pragma unroll
    for (uint32_t n = 0; n < 2; ++n) {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        const float score = s[0][n][e] + s[1][n][e];
        if (j == 0) {
          x[0][n][e] = score;
          x[1][n][e] = 0;
        }
        if (j == 1) x[1][n][e] = score;
      }
    }
  }
}

// A lane's two queries see these positions, by row: [seen, past).
struct SeenRange {
  uint32_t seen[2], past[2];
};

// Scores of the turn that begins with `tile` become weights; top, sum and shrink
// of the state are then those of the turn.
template <DecodingTeam Team>
__device__ __forceinline__ void weigh(const Team& t, uint32_t tile, const SeenRange& range, float (&x)[2][2][4],
                                      DecodeState<Team::kDim>& state) {
  const uint32_t of_turn = min(2u, t.tiles - tile);
  float higher[2] = {state.top[0], state.top[1]};
#pragma unroll
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t j = i / 8, n = i / 4 % 2, e = i % 4, row = e / 2;
    const uint32_t token = t.token_of(tile + j) + threadIdx.x % 4 * 2 + n * 8 + e % 2;
    if (token < range.seen[row] || token >= range.past[row] || (j == 1 && of_turn == 1)) x[j][n][e] = kNothing;
    higher[row] = fmaxf(higher[row], x[j][n][e]);
  }
#pragma unroll
  for (uint32_t row = 0; row < 2; ++row) {
    higher[row] = cuda::row_max(higher[row]);
    state.shrink[row] = state.top[row] == kNothing ? 0 : exp2_approx(state.top[row] - higher[row]);
    state.top[row] = higher[row];
    const float base = higher[row] == kNothing ? 0 : higher[row];
    float added[2];  // by tile
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        float& v = x[j][i / 2][2 * row + i % 2];
        v = exp2_approx(v - base);
      }
      added[j] = (x[j][0][2 * row] + x[j][0][2 * row + 1]) + (x[j][1][2 * row] + x[j][1][2 * row + 1]);
    }
    state.sum[row] = state.sum[row] * state.shrink[row] + (added[0] + added[1]);
  }
}

// Adds one or two tiles of values, weighted.
template <DecodingTeam Team>
__device__ __forceinline__ void add_values(RingReader<Team>& ring, uint32_t of_turn, const float (&x)[2][2][4],
                                           DecodeState<Team::kDim>& state) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
#pragma unroll 1
  for (uint32_t j = 0; j < of_turn; ++j) {
    uint32_t weights[4];  // an A fragment (rows 16, keys 16)
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t n = i / 2, e = i % 2 * 2;
      weights[i] =
          j == 0 ? cuda::to_halves<E>(x[0][n][e], x[0][n][e + 1]) : cuda::to_halves<E>(x[1][n][e], x[1][n][e + 1]);
    }
    const uint32_t values = ring.next();
#pragma unroll
    for (uint32_t n = 0; n < D / 16; ++n) {
      uint32_t b[4];  // B fragments of dimensions 16 n to + 7, then of + 8 to + 15
      cuda::load_matrices_transposed(b, values + rows_first<D>(0, n * 2));
      cuda::mma<E>(state.out[2 * n], weights, b[0], b[1]);
      cuda::mma<E>(state.out[2 * n + 1], weights, b[2], b[3]);
    }
  }
}

// The warp's share of the split, once prepare_heads() is done.
template <DecodingTeam Team>
__device__ __forceinline__ void attend(const Team& t, DecodeState<Team::kDim>& state) {
  constexpr uint32_t D = Team::kDim;
  constexpr bool kKeep = D <= 128;
  const uint32_t g = threadIdx.x % 32 / 4;
  QueryFragments<D, kKeep> q(cuda::shared_address(t.query_tile()));
  const Query *low = t.memory.queries + g, *high = low + 8;
  const SeenRange range{{low->seen, high->seen}, {low->past, high->past}};
  const ScoreScale scale = score_scale(t.a.scale, t.a.softcap);
  RingReader<Team> ring(t);
#pragma unroll 1
  for (uint32_t tile = 0; tile < t.tiles; tile += 2) {
    const uint32_t of_turn = min(2u, t.tiles - tile);
    float x[2][2][4];  // [tile][eight keys][an mma's sums]: scores, then weights
    score(ring, of_turn, q, x);
    scale(x);
    weigh(t, tile, range, x, state);
    if (tile > 0) {
#pragma unroll
      for (float(&o)[4] : state.out) {
        o[0] *= state.shrink[0];
        o[1] *= state.shrink[0];
        o[2] *= state.shrink[1];
        o[3] *= state.shrink[1];
      }
    }
    add_values(ring, of_turn, x, state);
  }
}

}  // namespace tenon::flash
