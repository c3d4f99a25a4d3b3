// This is the inner loop of cuda_decode.cu where a warp is a team, and where the cache has codes: as decode_attend.cuh,
// but with queries as the columns of the products, of which there are eight, so that a lane has half as many sums. Four
// blocks of warps that are teams fit on a multiprocessor then, and codes leave time for being unpacked (codes.cuh).
//
//   scores  (keys 16, queries 8) = K (keys 16, dimensions 16) Q^T (dimensions 16, queries 8)
//   values  (dimensions 16, queries 8) += V^T (dimensions 16, keys 16) weights (keys 16, queries 8)
//
// In a 16 x 8 product, lane 4 g + t has rows g and g + 8 (keys, or dimensions) and columns 2t and 2t + 1 (queries). Sum
// 2 * row + column is of row g + 8 * row and query 2t + column. A turn is two tiles, of 16 keys or two times 16. Where
// there are codes, rows g and g + 8 of values are the two dimensions that lane_dim() says.
#pragma once

#include "decode_attend.cuh"

namespace tenon::flash {

// A lane has this of its two queries.
template <uint32_t D>
struct WarpState {
  float top[2] = {kNothing, kNothing};  // by column: the greatest score
  float sum[2] = {0, 0};                // by column: it sums the lane's weights
  float out[D / 16][4] = {};            // [16 dimensions][an mma's sums]: of weighted values
};

// This reads a warp's tiles of codes: a tile that was read makes room for the one at the same place of the next turn.
template <DecodingTeam Team>
class TurnReader {
 public:
  using Shape = typename Team::Shape;
  __device__ __forceinline__ explicit TurnReader(const Team& t)
      : t_(t), keys_(t.coded_rows(Side::kKeys)), values_(t.coded_rows(Side::kValues)) {}
  // Calls use(address) with the turn's tile number j of keys or values, if there is such a one. tile: the turn's first.
  template <Side kSide, uint32_t j, class Use>
  __device__ __forceinline__ void take(uint32_t tile, bool there, const Use& use) {
    if (there) {
      const uint32_t address = t_.tile_address(Team::coded_stage(j, kSide)), next = tile + 2 + j;
      cuda::wait_copies<Shape::kStages - 1>();
      __syncwarp();
      use(address);
      __syncwarp();
      const TileTokens tokens{t_.token_of(next), 0, t_.end, t_.end};
      if (next < t_.tiles) {
        if constexpr (kSide == Side::kValues) {
          values_(address, tokens);
        } else {
          keys_(address, tokens);
        }
      }
    }
    cuda::commit_copies();
  }

 private:
  const Team& t_;
  const CodedTileLoader<Team::kDim, typename Team::Code, kKeysByChannel<typename Team::Code>> keys_;
  const CodedTileLoader<Team::kDim, typename Team::Code> values_;
};

// These are the B fragments of the queries (dimensions 16, queries 8). A query that there is not has zeros.
template <DecodingTeam Team>
struct CodedQueryColumns {
  static constexpr uint32_t D = Team::kDim;
  uint32_t b[D / 16][2];  // [16 dimensions], in the order in which keys come as pairs
  __device__ __forceinline__ explicit CodedQueryColumns(const Team& t) {
    using C = typename Team::Code;
    const uint32_t query = threadIdx.x % 32 / 4;
    const bool there = query < Team::Shape::query_rows(t.a);
    const uint32_t tile = cuda::shared_address(t.query_tile());
#pragma unroll
    for (uint32_t k = 0; k < D / 16; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t piece = 2 * k / C::kPairs, pair = 2 * k % C::kPairs + i;
        const auto half = [&](uint32_t element) {
          const uint32_t d = dim_of_key<C>(piece, pair, element);
          return there ? cuda::load_shared_2(tile + tile_offset<D>(query, d / 8) + d % 8 * 2) : 0;
        };
        b[k][i] = half(0) | half(1) << 16;
      }
    }
  }
};
// This does the same for fp16 and bf16: columns stay in registers, or are loaded each time if these are too few.
template <DecodingTeam Team>
class PlainQueryColumns {
 public:
  static constexpr uint32_t D = Team::kDim;
  static constexpr bool kKeep = Team::Shape::kBlocks < 4;
  using TwoColumns = uint32_t[4];  // the fragments of 32 dimensions
  __device__ __forceinline__ explicit PlainQueryColumns(const Team& t) {
    const uint32_t query = threadIdx.x % 8, piece = threadIdx.x % 32 / 8;
    const bool there = query < Team::Shape::query_rows(t.a);
    tile_ = cuda::shared_address(there ? t.query_tile() : t.zeros());
    there_ = there ? ~0u : 0;
    own_ = tile_offset<D>(query, piece);
    if (kKeep) {
#pragma unroll
      for (uint32_t i = 0; i < D / 32; ++i) load(i);
    }
  }
  // Returns the i-th.
  __device__ __forceinline__ const TwoColumns& operator()(uint32_t i) {
    if (!kKeep) load(i);
    return b_[kKeep ? i : 0];
  }

 private:
  __device__ __forceinline__ void load(uint32_t i) {
    constexpr uint32_t kStretchBytes = 64;  // 32 dimensions of a row take so many, which are four pieces
    cuda::load_matrices(b_[kKeep ? i : 0], tile_ + ((own_ ^ i * kStretchBytes) & there_));
  }
  TwoColumns b_[kKeep ? D / 32 : 1];
  uint32_t tile_, own_, there_;
};
template <DecodingTeam Team>
using QueryColumns = std::conditional_t<Team::Shape::kCoded, CodedQueryColumns<Team>, PlainQueryColumns<Team>>;

// Makes the A fragments of 16 keys of a tile of codes, from `key` on: keys (keys 16, dimensions 16) or
// values (dimensions 16, keys 16). use(k, fragment) gets the k-th 16 dimensions; here those of two
// pieces of the rows, and below all of them.
template <uint32_t D, Side kSide, Codec C, class Use>
__device__ __forceinline__ void unpack_pieces(uint32_t tile, uint32_t key, uint32_t pieces, const Use& use) {
  constexpr uint32_t kColumns = CodedTile<D, C>::kColumns, kPairs = C::kPairs;
  uint32_t words[4];  // they hold of the first piece tokens 0 to 7, then 8 to 15; of the second one
  if constexpr (kSide == Side::kKeys) {
    cuda::load_matrices(words, tile + rows_first<kColumns>(key, pieces));
  } else {
    cuda::load_matrices_transposed(words, tile + rows_first<kColumns>(key, pieces));
  }
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    uint32_t low[kPairs], high[kPairs];
    C::unpack_pairs(words[2 * i], low);
    C::unpack_pairs(words[2 * i + 1], high);
#pragma unroll
    for (uint32_t j = 0; j < kPairs; j += 2) {
      const uint32_t k = ((pieces + i) * kPairs + j) / 2;
      if constexpr (kSide == Side::kKeys) {
        use(k, {low[j], high[j], low[j + 1], high[j + 1]});
      } else {
        use(k, {low[j], low[j + 1], high[j], high[j + 1]});
      }
    }
  }
}
template <uint32_t D, Side kSide, Codec C, class Use>
__device__ __forceinline__ void unpack_tile(uint32_t tile, uint32_t key, const Use& use) {
#pragma unroll
  for (uint32_t pieces = 0; pieces < CodedTile<D, C>::kColumns / 8; pieces += 2) {
    unpack_pieces<D, kSide, C>(tile, key, pieces, use);
  }
}

// Multiplies sums, or weights, of 16 keys by their tokens' scales, which are
// those of rows g and g + 8, and by a factor.
template <DecodingTeam Team>
__device__ __forceinline__ void scale_rows(uint32_t tile, uint32_t key, float factor, float (&x)[4]) {
  using Tile = CodedTile<Team::kDim, typename Team::Code>;
  const uint32_t g = key + threadIdx.x % 32 / 4;
  const float scale[2] = {Tile::scale(tile, g) * factor, Tile::scale(tile, g + 8) * factor};
#pragma unroll
  for (uint32_t e = 0; e < 4; ++e) x[e] *= scale[e / 2];
}

// A tile has these scores, which become weights: [16 keys][an mma's sums].
template <DecodingTeam Team>
using TileScores = float[Team::Shape::kTileKeys / 16][4];

// Multiplies 16 keys of a tile by the queries.
template <DecodingTeam Team>
__device__ __forceinline__ void score_keys(uint32_t keys, uint32_t key, QueryColumns<Team>& q, float (&x)[4]) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
  float s[2][4] = {};  // [even or odd 16 dimensions][an mma's sums]
  if constexpr (Team::Shape::kCoded) {
    unpack_tile<D, Side::kKeys, typename Team::Code>(
        keys, key, [&](uint32_t k, const uint32_t(&a)[4]) { cuda::mma<E>(s[k % 2], a, q.b[k][0], q.b[k][1]); });
  } else {
#pragma unroll
    for (uint32_t i = 0; i < D / 32; ++i) {
      const auto& b = q(i);
#pragma unroll
      for (uint32_t odd = 0; odd < 2; ++odd) {
        uint32_t a[4];
        cuda::load_matrices(a, keys + rows_first<D>(key, i * 4 + odd * 2));
        cuda::mma<E>(s[odd], a, b[odd * 2], b[odd * 2 + 1]);
      }
    }
  }
#pragma unroll
  for (uint32_t e = 0; e < 4; ++e) x[e] = s[0][e] + s[1][e];
  if constexpr (Team::Shape::kCoded) scale_rows<Team>(keys, key, Team::Code::kUnit, x);
}
// Multiplies a tile of keys by channel, which are of one group, by the queries: q . key = q . zeros + (q steps) .
// codes. Both sums are an mma's; the first one is of 16 rows that are all the zeros.
template <DecodingTeam Team>
__device__ __forceinline__ void score_by_channel(uint32_t keys, QueryColumns<Team>& q, TileScores<Team>& x) {
  using E = typename Team::Element;
  using Code = typename Team::Code;
  using Tile = CodedTile<Team::kDim, Code>;
  constexpr uint32_t kPairs = Code::kPairs;
  float of_zeros[4] = {};
#pragma unroll
  for (uint32_t pieces = 0; pieces < Tile::kColumns / 8; pieces += 2) {
    uint32_t scaled[kPairs][2];  // [16 dimensions of the two pieces]: B fragments of q steps
#pragma unroll
    for (uint32_t piece = pieces; piece < pieces + 2; ++piece) {
      const uint32_t at = keys + dim_of_key<Code>(piece, 0, 0) * sizeof(__half);  // the lane has eight dimensions here
      const ChannelPairs zeros(cuda::load_shared(at + Tile::kZerosAt)), steps(cuda::load_shared(at + Tile::kStepsAt));
#pragma unroll
      for (uint32_t j = 0; j < kPairs; j += 2) {
        const uint32_t k = (piece * kPairs + j) / 2, own = k - pieces * kPairs / 2;
        scaled[own][0] = times(q.b[k][0], steps.pair[j]);
        scaled[own][1] = times(q.b[k][1], steps.pair[j + 1]);
        cuda::mma<E>(of_zeros, {zeros.pair[j], zeros.pair[j], zeros.pair[j + 1], zeros.pair[j + 1]}, q.b[k][0],
                     q.b[k][1]);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < Team::Shape::kTileKeys / 16; ++i) {
      unpack_pieces<Team::kDim, Side::kKeys, typename Code::Keys>(
          keys, 16 * i, pieces, [&](uint32_t k, const uint32_t(&a)[4]) {
            const uint32_t own = k - pieces * kPairs / 2;
            cuda::mma<E>(x[i], a, scaled[own][0], scaled[own][1]);
          });
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < Team::Shape::kTileKeys / 16; ++i) {
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) x[i][e] += of_zeros[e];
  }
}
template <DecodingTeam Team>
__device__ __forceinline__ void score_tile(uint32_t keys, QueryColumns<Team>& q, TileScores<Team>& x) {
  if constexpr (kKeysByChannel<typename Team::Code>) {
    score_by_channel<Team>(keys, q, x);
  } else {
#pragma unroll
    for (uint32_t i = 0; i < Team::Shape::kTileKeys / 16; ++i) score_keys<Team>(keys, 16 * i, q, x[i]);
  }
}

// A greater top makes the sums before it smaller: they are multiplied by these factors.
struct Shrinks {
  float by_column[2];
};
// Makes weights of the scores of the turn that begins with `tile`, and takes them into state.top and state.sum.
template <DecodingTeam Team>
__device__ __forceinline__ Shrinks weigh(const Team& t, uint32_t tile, const SeenRange& range, TileScores<Team> (&x)[2],
                                         WarpState<Team::kDim>& state) {
  constexpr uint32_t kBlocks = Team::Shape::kTileKeys / 16;  // a block has 16 keys
  Shrinks shrink;
  float higher[2] = {state.top[0], state.top[1]};
#pragma unroll
  for (uint32_t j = 0; j < 2; ++j) {
    const uint32_t first = t.token_of(tile + j);
    const bool there = tile + j < t.tiles;
#pragma unroll
    for (uint32_t i = 0; i < 4 * kBlocks; ++i) {
      const uint32_t e = i % 4, column = e % 2, token = first + threadIdx.x % 32 / 4 + i / 4 * 16 + e / 2 * 8;
      float& score = x[j][i / 4][e];
      if (!there || token < range.seen[column] || token >= range.past[column]) score = kNothing;
      higher[column] = fmaxf(higher[column], score);
    }
  }
#pragma unroll
  for (uint32_t column = 0; column < 2; ++column) {
    higher[column] = cuda::column_max(higher[column]);
    shrink.by_column[column] = state.top[column] == kNothing ? 0 : exp2_approx(state.top[column] - higher[column]);
    state.top[column] = higher[column];
    const float base = higher[column] == kNothing ? 0 : higher[column];
    float added = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4 * kBlocks; ++i) {
      float& v = x[i / 2 / kBlocks][i / 2 % kBlocks][i % 2 * 2 + column];
      v = exp2_approx(v - base);
      added += v;
    }
    state.sum[column] = state.sum[column] * shrink.by_column[column] + added;
  }
  return shrink;
}

// The sums of weighted values have to be multiplied by this: weights times scales are enlarged, so that they are about
// as large as the values and fp16 rounds them as it would round those.
template <DecodingTeam Team>
__device__ constexpr float value_unit() {
  if constexpr (Team::Shape::kCoded) {
    return 1 / Team::Code::kWhole;
  } else {
    return 1;
  }
}
// Adds the values of 16 tokens of a tile, weighted.
template <DecodingTeam Team>
__device__ __forceinline__ void add_keys(uint32_t values, uint32_t key, float (&x)[4], WarpState<Team::kDim>& state) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
  if constexpr (Team::Shape::kCoded) scale_rows<Team>(values, key, Team::Code::kUnit * Team::Code::kWhole, x);
  const uint32_t b0 = cuda::transposed(cuda::to_halves<E>(x[0], x[1])),
                 b1 = cuda::transposed(cuda::to_halves<E>(x[2], x[3]));
  const auto multiply = [&](uint32_t n, const uint32_t(&a)[4]) { cuda::mma<E>(state.out[n], a, b0, b1); };
  if constexpr (Team::Shape::kCoded) {
    unpack_tile<D, Side::kValues, typename Team::Code>(values, key, multiply);
  } else {
#pragma unroll
    for (uint32_t n = 0; n < D / 16; ++n) {
      uint32_t a[4];
      cuda::load_matrices_transposed(a, values + pieces_first<D>(key, n * 2));
      multiply(n, a);
    }
  }
}
template <DecodingTeam Team>
__device__ __forceinline__ void add_tile(uint32_t values, TileScores<Team>& x, WarpState<Team::kDim>& state) {
#pragma unroll
  for (uint32_t i = 0; i < Team::Shape::kTileKeys / 16; ++i) add_keys<Team>(values, 16 * i, x[i], state);
}

// Returns the dimension that a lane's sums out[n][2 * row] and out[n][2 * row + 1] are of.
template <DecodingTeam Team>
__device__ __forceinline__ uint32_t lane_dim(uint32_t n, uint32_t row) {
  if constexpr (Team::Shape::kCoded) {
    using C = typename Team::Code;
    return dim_of_value<C>(2 * n / C::kPairs, 2 * n % C::kPairs + row);
  } else {
    return 16 * n + 8 * row + threadIdx.x % 32 / 4;
  }
}

// A greater top makes the sums before it smaller.
template <uint32_t D>
__device__ __forceinline__ void shrink_sums(const Shrinks& shrink, WarpState<D>& state) {
#pragma unroll
  for (float(&o)[4] : state.out) {
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) o[e] *= shrink.by_column[e % 2];
  }
}

// The warp attends to its share of the split, once prepare_heads() is done.
template <DecodingTeam Team>
__device__ __forceinline__ void attend(const Team& t, WarpState<Team::kDim>& state) {
  const Query* own = t.memory.queries + threadIdx.x % 4 * 2;
  const SeenRange range{{own[0].seen, own[1].seen}, {own[0].past, own[1].past}};
  const ScoreScale scale = score_scale(t.a.scale, t.a.softcap);
  QueryColumns<Team> q(t);
  std::conditional_t<Team::Shape::kCoded, TurnReader<Team>, RingReader<Team>> ring(t);
#pragma unroll 1
  for (uint32_t tile = 0; tile < t.tiles; tile += 2) {
    const bool two = tile + 1 < t.tiles;
    TileScores<Team> x[2] = {};  // [tile]
    ring.template take<Side::kKeys, 0>(tile, true, [&](uint32_t keys) { score_tile<Team>(keys, q, x[0]); });
    ring.template take<Side::kKeys, 1>(tile, two, [&](uint32_t keys) { score_tile<Team>(keys, q, x[1]); });
    scale(x);
    const Shrinks shrink = weigh(t, tile, range, x, state);
    if (tile > 0) shrink_sums(shrink, state);
    ring.template take<Side::kValues, 0>(tile, true, [&](uint32_t values) { add_tile<Team>(values, x[0], state); });
    ring.template take<Side::kValues, 1>(tile, two, [&](uint32_t values) { add_tile<Team>(values, x[1], state); });
  }
}

}  // namespace tenon::flash
