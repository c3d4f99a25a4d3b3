// This does the attention of steps with many rows, on any GPU since sm_80: FlashAttention-2 (Dao, arXiv:2307.08691). A
// block takes tiles of 64 rows of one query head, one after the other, a warp 16 rows. It also does what comes before
// it, on any GPU: norm, rope, append, and the queries in the cache's type. The naive twins of both are exact.cuh, which
// computes the formula in f32, and AttentionHost::expected() of conformance/attention_expected.cc, in f64.
//
// The block walks the positions in tiles of 64 or 32 keys, with two buffers for keys and two for values: while it
// multiplies keys, the next ones come, and the same of values: by asynchronous copies or, of codecs with scales,
// through registers, from which they go to shared memory as fp16 when the products of the tile at hand are done. A tile
// has three phases: scores, softmax, values.
#include <algorithm>

#include "codes.cuh"
#include "cuda_ops.h"
#include "halves_result.cuh"
#include "head.cuh"
#include "prefill.cuh"
#include "softmax.cuh"
#include "tenon/cuda/mma.cuh"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tiles.cuh"

namespace tenon::flash {
namespace {

// ---- prepare ----------------------------------------------------------------------------------------------------------
// This is a head of a row, on its way to the converted queries or to the cache.
template <cuda::HalfType E>
struct PreparedHead {
  HeadSource source{};
  E* to = nullptr;  // nullptr: there is nothing to do
};
template <cuda::HalfType E>
__device__ PreparedHead<E> head_of_row(const GpuArgs& a, const GpuPointers& p, uint32_t row, uint32_t head) {
  const auto pos = static_cast<uint32_t>(p.pos[row]);
  const float* table = rope_row(a, p, p.pos[row]);
  if (head < a.q_heads) {
    E* to = static_cast<E*>(p.converted) + int64_t{row} * (a.q_heads * a.kv.k.dim) + head * a.kv.k.dim;
    return {{query_head(a, p, row, head), a.kv.k.dim, p.q_weight, table}, to};
  }
  const Side side = head >= a.q_heads + a.kv.heads ? Side::kValues : Side::kKeys;
  const uint32_t kv_head = head - a.q_heads - (side == Side::kValues ? a.kv.heads : 0);
  if (pos >= a.kv_len) return {};
  const cuda::KvRows rows = cached(a, p, side, static_cast<uint32_t>(p.slot[row]), kv_head);
  const bool key = side == Side::kKeys;
  return {
      {new_head(a, p, side, row, kv_head), plane_of(a, side).dim, key ? p.k_weight : nullptr, key ? table : nullptr},
      reinterpret_cast<E*>(rows.at(pos))};
}
// Returns how many heads a row has: of Q and, if they are to be appended, of K and V.
__host__ __device__ uint32_t heads_of_row(const GpuArgs& a) {
  return a.q_heads + (a.append != 0 ? 2 * a.kv.heads : 0);
}

constexpr uint32_t kPrepareWarps = 4, kPrepareHeads = 8;

// A warp prepares heads [first, end) of a row where no head has a norm, and all of their dimensions turn or none: Q, K and
// V lie side by side. x is asked for before anything that says where it goes, and that is looked up once for all heads.
template <cuda::HalfType E, uint32_t D>
__device__ void prepare_plain(const GpuArgs& a, const GpuPointers& p, uint32_t row, uint32_t first, uint32_t end) {
  constexpr uint32_t kOwn = LaneRope<D>::kOwn;
  using Loaded = std::conditional_t<kOwn % 4 == 0, float4, float2>;
  constexpr uint32_t kLoads = kOwn * sizeof(float) / sizeof(Loaded);
  alignas(Loaded) float x[kPrepareHeads][kOwn];  // [head][the lane's elements]
  const auto* from = reinterpret_cast<const Loaded*>(p.q + row * a.q_row + first * D) + threadIdx.x % 32 * kLoads;
#pragma unroll
  for (uint32_t i = 0; i < kPrepareHeads; ++i) {
    if (first + i >= end) break;
#pragma unroll
    for (uint32_t n = 0; n < kLoads; ++n) reinterpret_cast<Loaded*>(x[i])[n] = from[i * 32 * kLoads + n];
  }
  const int32_t slot = p.slot[row], pos = p.pos[row];
  if (slot < 0) return;
  char *keys = nullptr, *values = nullptr;  // the first KV head's; nullptr: there is no room
  if (end > a.q_heads && static_cast<uint32_t>(pos) < a.kv_len) {
    keys = cached(a, p, Side::kKeys, static_cast<uint32_t>(slot), 0).at(static_cast<uint32_t>(pos));
    values = cached(a, p, Side::kValues, static_cast<uint32_t>(slot), 0).at(static_cast<uint32_t>(pos));
  }
  LaneRope<D> turn;
  turn.load(a, rope_row(a, p, pos));
  E* queries = static_cast<E*>(p.converted) + int64_t{row} * (a.q_heads * D);
#pragma unroll
  for (uint32_t i = 0; i < kPrepareHeads; ++i) {
    const uint32_t head = first + i, kv_head = head - a.q_heads;
    if (head >= end) break;
    const bool query = head < a.q_heads, value = !query && kv_head >= a.kv.heads;
    if (!query && (value ? values : keys) == nullptr) continue;
    E* to = query   ? queries + head * D
            : value ? reinterpret_cast<E*>(values + (kv_head - a.kv.heads) * a.kv.v.head)
                    : reinterpret_cast<E*>(keys + kv_head * a.kv.k.head);
    if (!value && a.rotated != 0) turn.apply(x[i]);
    store_own<E, D>(x[i], to);
  }
}

// A warp takes kPrepareHeads heads of a row. If tiles are to be listed, there is a block more, which does that.
template <cuda::HalfType E, uint32_t D>
__global__ void __launch_bounds__(32 * kPrepareWarps)
    prepare_kernel(const __grid_constant__ GpuArgs a, const __grid_constant__ GpuPointers p) {
  cuda::wait();
  const uint32_t heads = heads_of_row(a), warps_a_row = (heads + kPrepareHeads - 1) / kPrepareHeads;
  const uint32_t warp = blockIdx.x * kPrepareWarps + threadIdx.x / 32, row = warp / warps_a_row;
  const uint32_t first = warp % warps_a_row * kPrepareHeads, end = min(first + kPrepareHeads, heads);
  if (a.tile_rows != 0 && blockIdx.x + 1 == gridDim.x) {
    if (threadIdx.x < 32) list_tiles(a, p);
    return;
  }
  if (row >= min(p.live[kLiveRows], a.rows)) return;
  if (LaneRope<D>::fits(a)) return prepare_plain<E, D>(a, p, row, first, end);
  if (p.slot[row] < 0) return;
  for (uint32_t head = first; head < end; ++head) {
    const auto h = head_of_row<E>(a, p, row, head);
    if (h.to == nullptr) continue;
    prepare_head<D / 32>(a, h.source, [&](uint32_t d, float value) { h.to[d] = cuda::from_float<E>(value); });
  }
}

// ---- attention --------------------------------------------------------------------------------------------------------
constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps, kRows = kTileRows;
static_assert(kRows == 16 * kWarps);

// A thread holds this of a tile (keys kKeys, D) that is on its way. A codec without scales leaves it nothing to hold.
template <class Bytes, uint32_t kKeys, uint32_t D>
struct TilePieces {
  static constexpr uint32_t kOfRow = D / 8 / Bytes::kEights, kAll = kKeys * kOfRow;
  ScaledPiece own[(kAll + kThreads - 1) / kThreads];
};
template <uint32_t kKeys, uint32_t D>
struct TilePieces<void, kKeys, D> {};

// A block has these rows. Of a warp's 16 a lane 4 g + t has g and g + 8; "row" of an array below is 0 for g and 1 for g +
// 8. Of eight keys or dimensions it has 2t and 2t + 1: an mma's sum 2 * row + i is of 2t + i.
// Bytes unpacks the cache's codec if that has scales; E is then __half. Else it is void.
template <cuda::HalfType E, uint32_t D, class Bytes>
struct Prefill {
  static constexpr uint32_t kKeys = D <= 128 ? 64 : 32;  // a tile has so many
  static constexpr uint32_t kQueryBytes = kRows * kTileRowBytes<D>, kTileBytes = kKeys * kTileRowBytes<D>;
  static constexpr uint32_t kSharedBytes = kQueryBytes + 4 * kTileBytes;  // queries, two tiles of keys, two of values
  using Scores = float[kKeys / 8][4];                                     // [eight keys][an mma's sums]
  // A lane has this of its two rows.
  struct State {
    float top[2] = {kNothing, kNothing};  // by row: the greatest score
    float sum[2] = {0, 0};                // by row: it sums the lane's weights
    float out[D / 8][4] = {};             // [eight dimensions][an mma's sums]
  };
  // A lane's rows see these positions, by row: [seen, past). whole: every row of the block sees every key of the tile.
  struct SeenRange {
    uint32_t seen[2], past[2];
    bool whole;
  };

  const GpuArgs& a;
  const GpuPointers& p;
  QueryTile t;
  uint32_t head, smem;

  __device__ uint32_t tile(Side side, uint32_t j) const {
    return smem + kQueryBytes + ((side == Side::kValues ? 2 : 0) + j % 2) * kTileBytes;
  }
  __device__ void load_queries() const {
    const uint32_t dim = a.kv.k.dim;
    const E* from = static_cast<const E*>(p.converted) + (int64_t{t.first_row} * a.q_heads + head) * dim;
    for (uint32_t i = threadIdx.x; i < kRows * D / 8; i += kThreads) {
      const uint32_t r = i / (D / 8), piece = i % (D / 8), to = smem + tile_offset<D>(r, piece);
      if (r < t.rows && piece < dim / 8) {
        cuda::copy_async(to, from + int64_t{r} * a.q_heads * dim + piece * 8);
      } else {
        cuda::store_zeros(to);
      }
    }
  }
  using Pieces = TilePieces<Bytes, kKeys, D>;

  // Fetches tile j: it has tokens from `first` on; those from `end` on are zeros.
  __device__ void fetch_tile(Side side, uint32_t j, uint32_t first, uint32_t end, Pieces& pieces) const {
    if constexpr (std::is_void_v<Bytes>) {
      copy_tile(side, j, first, end);
    } else {
      const cuda::KvRows rows = cached(a, p, side, t.slot, head / a.group);
      const cuda::KvRows scales = cached_scales(a, p, side, t.slot, head / a.group);
#pragma unroll
      for (uint32_t n = 0; n < sizeof(pieces.own) / sizeof(ScaledPiece); ++n) {
        const uint32_t i = n * kThreads + threadIdx.x, r = i / Pieces::kOfRow, piece = i % Pieces::kOfRow;
        pieces.own[n] = {};
        if (i < Pieces::kAll && first + r < end && piece < plane_of(a, side).dim / (8 * Bytes::kEights)) {
          if (kKeysByChannel<Bytes> && side == Side::kKeys) {
            pieces.own[n].raw = *reinterpret_cast<const uint4*>(rows.at(first + r) + piece * 16);
          } else {
            pieces.own[n].load(rows, scales, first + r, piece);
          }
        }
      }
    }
  }
  // Puts what fetch_tile() got for the same tokens into shared memory.
  __device__ void put_tile(Side side, uint32_t j, uint32_t first, uint32_t end, const Pieces& pieces) const {
    if constexpr (kKeysByChannel<Bytes>) {
      if (side == Side::kKeys) return put_by_channel(j, first, end, pieces);
    }
    if constexpr (!std::is_void_v<Bytes>) {
#pragma unroll
      for (uint32_t n = 0; n < sizeof(pieces.own) / sizeof(ScaledPiece); ++n) {
        const uint32_t i = n * kThreads + threadIdx.x, r = i / Pieces::kOfRow, piece = i % Pieces::kOfRow;
        if (i < Pieces::kAll) pieces.own[n].template store<D, Bytes>(tile(side, j), r, piece);
      }
    }
  }
  // Does the same with keys by channel. Rows and columns that do not exist become zeros.
  __device__ void put_by_channel(uint32_t j, uint32_t first, uint32_t end, const Pieces& pieces) const {
    const uint32_t dim = a.kv.k.dim, to = tile(Side::kKeys, j);
#pragma unroll
    for (uint32_t n = 0; n < sizeof(pieces.own) / sizeof(ScaledPiece); ++n) {
      const uint32_t i = n * kThreads + threadIdx.x, r = i / Pieces::kOfRow, piece = i % Pieces::kOfRow;
      if (i >= Pieces::kAll) continue;
      const uint32_t at = piece * Bytes::kEights;  // the piece begins at this one of the row's eights
      if (first + r >= end || at * 8 >= dim) {
        for (uint32_t e = 0; e < Bytes::kEights; ++e) cuda::store_zeros(to + tile_offset<D>(r, at + e));
        continue;
      }
      const auto* zeros = reinterpret_cast<const uint4*>(cached_channels(a, p, t.slot, head / a.group, first + r)) + at;
      unpack_by_channel(
          pieces.own[n].raw,
          [&](uint32_t e) {
            return EightChannels{zeros[e], zeros[dim / 8 + e]};
          },
          [&](uint32_t e, const uint4& eight) { cuda::store_shared(to + tile_offset<D>(r, at + e), eight); });
    }
  }
  __device__ void copy_tile(Side side, uint32_t j, uint32_t first, uint32_t end) const {
    const cuda::KvRows rows = cached(a, p, side, t.slot, head / a.group);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < kKeys * D / 8; i += kThreads) {
      const uint32_t r = i / (D / 8), piece = i % (D / 8), to = tile(side, j) + tile_offset<D>(r, piece);
      if (first + r < end && piece < plane_of(a, side).dim / 8) {
        cuda::copy_async(to, rows.at(first + r) + piece * 16);
      } else {
        cuda::store_zeros(to);
      }
    }
  }

  __device__ void run() {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    const uint32_t end = t.end, begin = a.first(t.position) / kKeys * kKeys;
    Pieces pieces;
    load_queries();
    fetch_tile(Side::kKeys, 0, begin, end, pieces);
    put_tile(Side::kKeys, 0, begin, end, pieces);
    cuda::commit_copies();
    fetch_tile(Side::kValues, 0, begin, end, pieces);
    put_tile(Side::kValues, 0, begin, end, pieces);
    cuda::commit_copies();

    SeenRange range;
    for (uint32_t row = 0; row < 2; ++row) {
      const uint32_t pos = t.position + warp * 16 + g + 8 * row;
      range.seen[row] = a.first(pos);
      range.past[row] = a.past(pos);
    }
    const ScoreScale scale = score_scale(a.scale, a.softcap);
    State state;
    uint32_t j = 0;
    for (uint32_t first = begin; first < end; first += kKeys, ++j) {
      cuda::wait_copies<1>();
      __syncthreads();
      const bool more = first + kKeys < end;
      if (more) fetch_tile(Side::kKeys, j + 1, first + kKeys, end, pieces);
      cuda::commit_copies();
      Scores s = {};
      multiply_keys(s, j);
      range.whole = first + kKeys <= a.past(t.position) && (a.window == 0 || first >= a.first(end - 1));
      if (more) put_tile(Side::kKeys, j + 1, first + kKeys, end, pieces);
      softmax(s, first + lane % 4 * 2, range, scale, state);
      cuda::wait_copies<1>();
      __syncthreads();
      if (more) fetch_tile(Side::kValues, j + 1, first + kKeys, end, pieces);
      cuda::commit_copies();
      multiply_values(s, j, state);
      if (more) put_tile(Side::kValues, j + 1, first + kKeys, end, pieces);
    }
    store(state);
  }

  // Computes s (rows 16, keys kKeys) += queries (rows 16, D) keys (D, kKeys).
  __device__ __forceinline__ void multiply_keys(Scores& s, uint32_t j) const {
#pragma unroll
    for (uint32_t k = 0; k < D / 16; ++k) {
      uint32_t q[4];  // an A fragment of the warp's 16 rows
      cuda::load_matrices(q, smem + rows_first<D>(threadIdx.x / 32 * 16, k * 2));
#pragma unroll
      for (uint32_t n = 0; n < kKeys / 16; ++n) {
        uint32_t b[4];  // B fragments of 8 keys, and of the next 8
        cuda::load_matrices(b, tile(Side::kKeys, j) + pieces_first<D>(n * 16, k * 2));
        cuda::mma<E>(s[2 * n], q, b[0], b[1]);
        cuda::mma<E>(s[2 * n + 1], q, b[2], b[3]);
      }
    }
  }

  // Scores become weights; what was summed up for a lower maximum shrinks. token: of s[0][0].
  __device__ __forceinline__ void softmax(Scores& s, uint32_t token, const SeenRange& range, const ScoreScale& scale,
                                          State& state) const {
    float higher[2] = {state.top[0], state.top[1]};
#pragma unroll
    for (uint32_t n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t row = e / 2, at = token + n * 8 + e % 2;
        s[n][e] = range.whole || (at >= range.seen[row] && at < range.past[row]) ? scale(s[n][e]) : kNothing;
        higher[row] = fmaxf(higher[row], s[n][e]);
      }
    }
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      higher[row] = cuda::row_max(higher[row]);
      const float base = higher[row] == kNothing ? 0 : higher[row], shrink = exp2_approx(state.top[row] - base);
      state.top[row] = higher[row];
      state.sum[row] *= shrink;
#pragma unroll
      for (uint32_t n = 0; n < kKeys / 8; ++n) {
        for (uint32_t e = 2 * row; e < 2 * row + 2; ++e) {
          s[n][e] = exp2_approx(s[n][e] - base);
          state.sum[row] += s[n][e];
        }
      }
#pragma unroll
      for (uint32_t n = 0; n < D / 8; ++n) {
        state.out[n][2 * row] *= shrink;
        state.out[n][2 * row + 1] *= shrink;
      }
    }
  }

  // Computes out (rows 16, D) += weights (rows 16, kKeys) values (kKeys, D).
  __device__ __forceinline__ void multiply_values(const Scores& s, uint32_t j, State& state) const {
#pragma unroll
    for (uint32_t k = 0; k < kKeys / 16; ++k) {
      const uint32_t weights[4] = {
          cuda::to_halves<E>(s[2 * k][0], s[2 * k][1]), cuda::to_halves<E>(s[2 * k][2], s[2 * k][3]),
          cuda::to_halves<E>(s[2 * k + 1][0], s[2 * k + 1][1]), cuda::to_halves<E>(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
      for (uint32_t n = 0; n < D / 16; ++n) {
        uint32_t b[4];  // B fragments of 8 dimensions, and of the next 8
        cuda::load_matrices_transposed(b, tile(Side::kValues, j) + rows_first<D>(k * 16, n * 2));
        cuda::mma<E>(state.out[2 * n], weights, b[0], b[1]);
        cuda::mma<E>(state.out[2 * n + 1], weights, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void store(const State& state) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const uint32_t r = warp * 16 + g + 8 * row;
      const float sum = cuda::row_sum(state.sum[row]);
      if (r >= t.rows) continue;
      const ResultFactors factors = result_factors(a, p, {t.first_row + r, head, state.top[row], sum}, lane % 4 == 0);
      if (a.out != Out::kF32) {
        store_halves<D>({a, p, t.first_row + r, head}, a.kv.v.dim,
                        [&](uint32_t i, uint32_t of_pair) { return state.out[i][2 * row + of_pair] * factors.own; });
        continue;
      }
      float* to = p.out + int64_t{t.first_row + r} * a.out_row + head * a.kv.v.dim + lane % 4 * 2;
#pragma unroll
      for (uint32_t i = 0; i < D / 8; ++i) {
        if (i * 8 >= a.kv.v.dim) break;
        to[i * 8] = result_of(factors, state.out[i][2 * row], to[i * 8]);
        to[i * 8 + 1] = result_of(factors, state.out[i][2 * row + 1], to[i * 8 + 1]);
      }
    }
  }
};

template <cuda::HalfType E, uint32_t D, class Bytes>
__global__ void __launch_bounds__(kThreads)
    prefill_kernel(const __grid_constant__ GpuArgs a, const __grid_constant__ GpuPointers p) {
  extern __shared__ __align__(128) char smem[];
  cuda::wait();
  const uint32_t most = a.tile_rows != 0 ? static_cast<uint32_t>(p.tiles[0].x) : gridDim.y;
  for (uint32_t number = blockIdx.y; number < most; number += gridDim.y) {
    const QueryTile t = QueryTile::next<kRows>(a, p, number);
    if (t.rows == 0) return;
    Prefill<E, D, Bytes>{a, p, t, blockIdx.x, cuda::shared_address(smem)}.run();
    __syncthreads();
  }
}

}  // namespace

void prepare(const GpuArgs& a, const cuda::Launch& l) {
  const uint32_t warps = a.rows * ((heads_of_row(a) + kPrepareHeads - 1) / kPrepareHeads);
  with_half(a.kv.k.codec, [&]<class E>(E) {
    with_dim<64, 128, 256>(head_dim(a), [&]<uint32_t D>() {
      l(&prepare_kernel<E, D>,
        {.blocks = {(warps + kPrepareWarps - 1) / kPrepareWarps + (a.tile_rows != 0 ? 1 : 0)},
         .threads = {32 * kPrepareWarps}},
        a, pointers(a, l));
    });
  });
}

void prefill(const GpuArgs& a, const cuda::Launch& l) {
  with_cache(a.kv.k, [&]<class E, class Bytes>(E, std::type_identity<Bytes>) {
    with_dim<64, 96, 128, 256>(head_dim(a), [&]<uint32_t D>() {
      l(&prefill_kernel<E, D, Bytes>,
        {.blocks = {a.q_heads, tile_blocks(a, kRows)},
         .threads = {kThreads},
         .shared_bytes = Prefill<E, D, Bytes>::kSharedBytes},
        a, pointers(a, l));
    });
  });
}

}  // namespace tenon::flash
