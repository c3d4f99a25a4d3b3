// Here a team of cuda_decode.cu works on one split, for those of its queries that have the same cut. It has: its shared
// memory, the tiles of its warps, and the rings that bring them.
#pragma once

#include <algorithm>

#include "decode_tiles.cuh"
#include "splits.cuh"
#include "tenon/cuda/block_size.h"
#include "tenon/cuda/mma.cuh"

namespace tenon::flash {

// The kernel has at most so many bytes of shared memory besides its teams'.
inline constexpr uint32_t kStaticBytes = 1024;
// As many blocks as kCodedBlocks fit on a multiprocessor if a team takes no more.
inline constexpr uint32_t kCodedBlockBytes = (75 << 10) - kStaticBytes;

// Warps leave what they make of a query, each of its part of the keys and values, in the shared memory of the block that
// folds it: [warp of the cluster][query of the block] rows of D sums of weighted values, the greatest score and the sum
// of the weights.
template <uint32_t D>
struct Shares {
  static constexpr uint32_t kBytes = (D + 2) * sizeof(float);
  static constexpr uint32_t kRow = kBytes + 24;  // the padding spreads rows over the banks
  static constexpr uint32_t kSumsAt = D * sizeof(float);
  char* base;
  uint32_t queries;
  // 1 << log2 blocks fold the queries of a team; each folds so many at most.
  static __host__ __device__ uint32_t queries_of_block(const GpuArgs& a, uint32_t log2) {
    return (queries_of_team(a) + (1u << log2) - 1) >> log2;
  }
  // More blocks need no less: 4 warps of one leave 16 queries, 8 of two leave 8.
  static __host__ __device__ uint32_t bytes(const GpuArgs& a, uint32_t log2) {
    return (kWarps << log2) * queries_of_block(a, log2) * kRow;
  }
  __device__ __forceinline__ char* at(uint32_t warp, uint32_t query) const {
    return base + (warp * queries + query) * kRow;
  }
};

// These are a team's sizes. kDepth 0: the block is a team. Else a warp is, and the fewer sequences there
// are, the deeper its ring: 3, 6 or 12 tiles of 128 dimensions, so that a multiprocessor has about as many
// bytes under way with four blocks, with two, or with one. Bytes: see DecodeTeam. A ring of codes holds a
// turn, K K V V, in which each tile has its place.
template <uint32_t D, class Bytes, uint32_t kDepth>
struct TeamShape {
  static constexpr bool kCoded = !std::is_void_v<Bytes>;
  static constexpr bool kWarpTeams = kDepth != 0;
  static constexpr uint32_t kWarpsOfTeam = kWarpTeams ? 1 : kWarps, kTeams = kWarps / kWarpsOfTeam;
  static constexpr uint32_t kMostQueries = kWarpTeams || kCoded ? kFewQueries : kQueries;
  static constexpr uint32_t kTileKeys = RingTile<D, Bytes>::kKeys, kTileBytes = RingTile<D, Bytes>::kBytes;
  static constexpr uint32_t kStride = kWarpsOfTeam * kTileKeys;  // so many tokens lie between a warp's tiles
  static constexpr uint32_t kBlocks =                            // a multiprocessor has so many; team_blocks() agrees
      kWarpTeams                                               ? std::min(kDeepest / kDepth, kCoded ? kCodedBlocks : 4u)
      : !kCoded || (kKeysByChannel<Bytes> && D > kMostDim / 2) ? kPlainBlocks
                                                               : kCodedBlocks;
  static constexpr uint32_t kStages =  // a warp's ring has so many
      kCoded       ? 4
      : kWarpTeams ? kDepth * 128 / D
      : D == 64    ? 8
      : D == 128   ? 5
                   : 3;
  // A team has in shared memory: [warp][stage] tiles of K or V, then a tile of queries, kZeroBytes of zeros, and the
  // Shares, which take the rings' place if there is no room for them.
  static constexpr uint32_t kRingBytes = kWarpsOfTeam * kStages * kTileBytes, kZeroBytes = 128;
  static constexpr uint32_t kRoom = kBlocks == kCodedBlocks ? kCodedBlockBytes : cuda::kSmallBlockBytes - kStaticBytes;
  static_assert(kWarpTeams || kWarps * kMostQueries * Shares<D>::kRow <= kRingBytes);

  static __host__ __device__ uint32_t share_bytes(const GpuArgs& a) { return Shares<D>::bytes(a, a.cluster_log2); }
  static __host__ __device__ bool shares_apart(const GpuArgs& a) {
    return !kWarpTeams && bytes_before_shares(a) + share_bytes(a) <= kRoom;
  }
  // So many rows of a tile of queries are in memory; the others are zeros. In a warp's team the ring has their place.
  static __host__ __device__ uint32_t query_rows(const GpuArgs& a) {
    return kWarpTeams ? queries_of_team(a) : kMostQueries;
  }
  static __host__ __device__ uint32_t bytes_before_shares(const GpuArgs& a) {
    return kRingBytes + query_rows(a) * D * 2 + kZeroBytes;
  }
  static __host__ __device__ uint32_t team_bytes(const GpuArgs& a) {
    return bytes_before_shares(a) + (shares_apart(a) ? share_bytes(a) : 0);
  }
  static __host__ __device__ uint32_t shared_bytes(const GpuArgs& a) { return kTeams * team_bytes(a); }
};

// A team has this memory to itself.
struct TeamMemory {
  Query* queries;  // [kMostQueries]
  char* tiles;     // team_bytes()
  float* scratch;  // the op's
  uint64_t* met;   // a barrier, where the shares of a cluster's blocks are awaited
};

// Bytes is the cache's Codec if that has scales; E, in which is multiplied, is then __half. Else it is void.
template <cuda::HalfType E, uint32_t D, class Bytes, uint32_t kDepth>
struct DecodeTeam {
  using Element = E;
  using Code = Bytes;
  using Shape = TeamShape<D, Bytes, kDepth>;
  static constexpr uint32_t kDim = D;
  static constexpr bool kWarpTeams = Shape::kWarpTeams;
  // who_appends() and can_rotate() say which layers need these.
  static constexpr bool kAppendsCodes = Shape::kCoded && !kWarpTeams && !kKeysByChannel<Bytes>;
  static constexpr bool kRotates = kAppendsCodes && can_rotate(D);

  const GpuArgs& a;
  const GpuPointers& p;
  const Work& w;
  const TeamMemory memory;
  Cut cut;
  uint32_t split, begin, end;  // the split has these positions
  uint32_t first_tile, tiles;  // the warp's first tile that is seen; it has so many of K, and as many of V
  const WholeTiles<D> whole;

  static __device__ uint32_t warp_of_team() { return kWarpTeams ? 0 : threadIdx.x / 32; }
  static __device__ uint32_t thread_of_team() { return threadIdx.x % (32 * Shape::kWarpsOfTeam); }
  static __device__ void sync() {
    if constexpr (kWarpTeams) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  __device__ char* ring() const { return memory.tiles + warp_of_team() * Shape::kStages * Shape::kTileBytes; }
  __device__ char* query_tile() const { return memory.tiles + Shape::kRingBytes; }
  __device__ char* zeros() const { return query_tile() + Shape::query_rows(a) * D * 2; }
  __device__ char* shares() const {
    return memory.tiles + (Shape::shares_apart(a) ? Shape::bytes_before_shares(a) : 0);
  }

  __device__ DecodeTeam(const GpuArgs& args, const GpuPointers& pointers, const Work& work, const TeamMemory& own)
      : a(args),
        p(pointers),
        w(work),
        memory(own),
        whole(static_cast<const char*>(pointers.keys) + work.kv_head * args.kv.k.head,
              static_cast<const char*>(pointers.values) + work.kv_head * args.kv.v.head,
              pointers.pages + size_t{work.slot} * args.kv.columns) {}
  // Rows [row, last_row] of the sequence have this cut, of which the team takes one split. Fills the table of queries.
  __device__ void take(const Cut& c, uint32_t number, uint32_t row, uint32_t last_row) {
    cut = c;
    split = number;
    begin = cut.start + split * cut.size;
    end = min(begin + cut.size, a.past(w.pos_of(last_row)));
    const uint32_t seen = a.first(w.pos_of(row));
    first_tile = seen > begin ? (seen - begin) / Shape::kStride : 0;
    tiles = tiles_of_warp(warp_of_team());
    const uint32_t thread = thread_of_team();
    if (thread < w.queries) {
      const uint32_t r = w.row_of(a, thread), pos = w.pos_of(r), past = a.past(pos);
      const bool mine = r >= row && r <= last_row;
      memory.queries[thread] = {r, w.head_of(a, thread), a.first(pos), mine ? past : 0, mine ? cut.count(past) : 0};
    } else if (thread < Shape::kMostQueries) {
      memory.queries[thread] = {};
    }
  }

  // ---- a warp's tiles: kTileKeys tokens of every kStride, from first_tile on ----
  __device__ uint32_t tiles_of_warp(uint32_t warp) const {
    const uint32_t own = begin + warp * Shape::kTileKeys;
    const uint32_t all = end > own ? (end - own + Shape::kStride - 1) / Shape::kStride : 0;
    return all > first_tile ? all - first_tile : 0;
  }
  // Returns the first token of this warp's tile.
  __device__ uint32_t token_of(uint32_t tile) const {
    return begin + (first_tile + tile) * Shape::kStride + warp_of_team() * Shape::kTileKeys;
  }

  // ---- a warp's ring: its tiles come in the order K K V V of a turn, the last turn having one or two of each. Example: 3
  // tiles come as K0 K1 V0 V1, K2 V2 ----
  // Returns the number of a tile of `tiles` in that order.
  static __device__ uint32_t order_of(uint32_t tile, Side side, uint32_t tiles) {
    return tile / 2 * 4 + tile % 2 + (side == Side::kValues ? min(2u, tiles - tile / 2 * 2) : 0);
  }
  // Loads the i-th in that order into a stage: tokens [from, to) that are below `end`.
  __device__ void load(uint32_t i, uint32_t stage, uint32_t from, uint32_t to) const {
    const uint32_t first = i / 4 * 2, of_turn = min(2u, tiles - first), in_turn = i % 4;
    const Side side = in_turn >= of_turn ? Side::kValues : Side::kKeys;
    const TileTokens tokens{token_of(first + in_turn - (side == Side::kValues ? of_turn : 0)), from, to, end};
    if constexpr (kWarpTeams && !Shape::kCoded) {
      if (a.whole_tiles != 0 && tokens.token >= from && tokens.token + kKeysOfTile <= min(to, end)) {
        whole.load(a.kv, side, tokens.token, tile_address(stage));
      } else {
        loader(side).load_slowly(tile_address(stage), tokens);
      }
    } else {
      loader(side)(tile_address(stage), tokens);
    }
  }
  __device__ TileLoader<D> loader(Side side) const {
    return {cached(a, p, side, w.slot, w.kv_head), plane_of(a, side).dim / 8};
  }
  __device__ uint32_t tile_address(uint32_t stage) const {
    return cuda::shared_address(ring()) + stage * Shape::kTileBytes;
  }

  // ---- a ring of codes: the tile number j (0 or 1) of a turn and side has stage 2 * side + j ----
  static __device__ uint32_t coded_stage(uint32_t j, Side side) { return (side == Side::kValues ? 2 : 0) + j; }
  __device__ CodedRows coded_rows(Side side) const {
    const bool values = side == Side::kValues;
    const cuda::KvPlane& plane = plane_of(a, side);
    const auto* scales = static_cast<const char*>(values ? p.value_scales : p.key_scales);
    return {plane,
            static_cast<const char*>(values ? p.values : p.keys) + w.kv_head * plane.head,
            scales + w.kv_head * plane.scale_head,
            p.pages + size_t{w.slot} * a.kv.columns,
            a.kv.page_cells,
            a.kv.columns};
  }
  // The step changes no keys and values before it: a group of keys is coded when its last token comes.
  __device__ uint32_t stable_len() const { return kKeysByChannel<Bytes> ? w.old_len & ~(a.kv.k.group - 1) : w.old_len; }
  // Loads tokens [from, to) of the first turn; each tile is a batch of copies, one that there is not an empty one.
  __device__ void prime_codes(uint32_t from, uint32_t to) const {
    const CodedTileLoader<D, Bytes, kKeysByChannel<Bytes>> keys(coded_rows(Side::kKeys));
    const CodedTileLoader<D, Bytes> values(coded_rows(Side::kValues));
#pragma unroll 1
    for (uint32_t stage = 0; stage < Shape::kStages; ++stage) {
      const uint32_t tile = stage % 2;
      const TileTokens tokens{token_of(tile), from, to, end};
      if (tile < tiles) {
        if (stage < 2) {
          keys(tile_address(stage), tokens);
        } else {
          values(tile_address(stage), tokens);
        }
      }
      cuda::commit_copies();
    }
  }

  // Primes the ring with tokens [from, to); each tile is a batch of copies.
  __device__ void prime(uint32_t from, uint32_t to) const {
    if constexpr (Shape::kCoded) {
      prime_codes(from, to);
    } else {
#pragma unroll 1
      for (uint32_t i = 0; i < Shape::kStages - 1; ++i) {
        if (i < 2 * tiles) load(i, i, from, to);
        cuda::commit_copies();
      }
    }
  }
  // Adds to the tiles in the ring what the step itself has appended.
  __device__ void prime_new() const {
    if constexpr (Shape::kCoded) {
      prime_codes(stable_len(), end);
    } else {
#pragma unroll 1
      for (uint32_t i = 0; i < min(2 * tiles, Shape::kStages - 1); ++i) load(i, i, w.old_len, end);
      cuda::commit_copies();
    }
    cuda::wait_copies<0>();
  }
};

template <class T>
inline constexpr bool kIsTeam = false;
template <cuda::HalfType E, uint32_t D, class Bytes, uint32_t kDepth>
inline constexpr bool kIsTeam<DecodeTeam<E, D, Bytes, kDepth>> = true;
template <class T>
concept DecodingTeam = kIsTeam<T>;

}  // namespace tenon::flash
