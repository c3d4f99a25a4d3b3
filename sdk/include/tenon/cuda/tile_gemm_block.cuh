// A block of tile_gemm.cuh or cluster_gemm.cuh has this: its share of the stages, and the rings in shared memory through
// which weights and x come.
#pragma once

#include <bit>
#include <cstdint>

#include "tenon/cuda/cluster.cuh"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/prepared_halves.cuh"
#include "tenon/cuda/warp.cuh"
#include "tenon/cuda/warpgroup.cuh"
#include "tenon/sdk/linked_rows.h"

namespace tenon::cuda {

inline constexpr uint32_t kTileGemmBand = 256, kTileGemmRows = 1024;  // the most rows of a band, and of a product

struct TileGemmPointers : MatvecPointers {
  float4* sums;     // scratch
  uint32_t* flags;  // zero: [block] kMostTeam
};

namespace detail {

inline constexpr uint32_t kWeightFillers = 3;  // so many warps fill the ring of weights
inline constexpr uint32_t kClusterBlocks = 2;  // a pair of blocks: they are a cluster
inline constexpr uint32_t kPanelTiles = 8;     // a block multiplies so many tiles of a panel
inline constexpr uint32_t kMostTeam = 8;       // at most so many pairs are a team
// Says whether teams multiply bands of n rows. The end of a product of fewer rows is hidden by the next one, whose
// blocks ask for their weights meanwhile; one of more rows has as many panels as pairs.
constexpr bool has_teams(uint32_t n) {
  return n > 64 && n <= 128;
}

// Returns how many panels so many tiles are; a pair of blocks multiplies a panel together.
__host__ __device__ inline uint32_t panels_of(uint32_t tiles) {
  constexpr uint32_t kTiles = kClusterBlocks * kPanelTiles;
  return (tiles + kTiles - 1) / kTiles;
}

template <PackedFormat F>
inline constexpr uint32_t kStageSegments = kStageK<F> / F::kSegmentK;
template <PackedFormat F>
inline constexpr uint32_t kTileStageBytes = kStageSegments<F> * F::kSegmentBytes;
// A warp multiplies a tile. Where a lane has so many sums that a kernel's even share of registers does not hold them,
// the warpgroup that fills the rings gives up most of its own.
template <int N>
struct TileGemmShape {
  static constexpr uint32_t kTurnK = N <= 64 ? 128 : 64;  // so many k are multiplied at once: a stage of x
  static constexpr bool kMovesRegisters = N > kTileGemmBand / 2;
  // If true, warps go through the end of their work before there is any, so that its instructions are in the cache when
  // they are needed. Kernels of more rows are too long for that.
  static constexpr bool kRehearses = N == 16;
  // A pair of a team finishes so many groups of eight rows at once.
  static constexpr uint32_t kGroupsAtOnce = N / 32;
  static constexpr uint32_t kKept = 24, kTaken = 240;                 // registers of a lane that fills, that multiplies
  static constexpr uint32_t kXFiller = kPanelTiles + kWeightFillers;  // a warp
  static constexpr uint32_t kMultiplying = 32 * kPanelTiles, kThreads = 32 * (kXFiller + 1);
};
// Products of so many rows may pass a norm to each other. What that adds to the end of one of more rows, which is long
// anyway, takes as long as x would to be prepared.
inline constexpr uint32_t kNormedRows = 128;

// These are in static shared memory: what the ends of products know of the rows of x and y.
template <int N>
struct RowNumbers {
  static constexpr bool kForNorms = N <= kNormedRows;
  static constexpr uint32_t kAtOnce = N % 32 == 0 ? 32 : 16;  // squares of so many rows are added up together
  float factor[N];                                            // undoes the scale of a row of x, and has its norm
  float square[kPanelTiles][kForNorms ? kAtOnce : 1];         // sums of squares of warps
  uint16_t scale[kForNorms ? N : 1];  // the upper half of an f32: a row for a norm is multiplied by this power of two
};
// A block's shared memory has the stages of weights first, and the rest at the offsets below. Of that, so many bytes from
// kSums on are kept free for sums that others leave there. Where stages of K are multiplied together (kStagesAtOnce), a
// stage of the ring has x of all of them.
template <PackedFormat F, int N, uint32_t kKeptForSums = 0, uint32_t kStagesAtOnce = 1>
struct TileGemmLayout {
  // A block takes all that one of an H100 may have, so neither a small nor a large one (block_size.h) stands beside it.
  static constexpr uint32_t kBytes = (227 << 10) - kTableBytes<F> - (sizeof(RowNumbers<N>) + 127) / 128 * 128;
  static constexpr uint32_t kWeightBytes = kPanelTiles * kTileStageBytes<F>;             // in a stage
  static constexpr uint32_t kXBytes = kStagesAtOnce * TileGemmShape<N>::kTurnK * N * 2;  // in a stage
  static constexpr uint32_t kXStages = N > 128 ? 4 : N == 128 ? 6 : N == 64 ? 5 : 8;
  static constexpr uint32_t kRest =
      kBytes - kXStages * (kXBytes + 16) - 128 - (kKeptForSums > 0 ? kKeptForSums + 128 : 0);
  static constexpr uint32_t kFit = kRest / (kWeightBytes + 16);
  static constexpr uint32_t kWeightStages = kFit >= 8 ? 8 : kFit;
  // At the beginning this many stages are asked for at once: more would not come
  // sooner, and x would wait in line after them.
  static constexpr uint32_t kFirstStages = (96U << 10) / kWeightBytes;
  static constexpr uint32_t kX = (kWeightStages * kWeightBytes + 127) / 128 * 128;
  static constexpr uint32_t kBarriers = kX + kXStages * kXBytes;
  // The rest has room for the sums of kGathered other blocks. With 16 rows nothing is copied there: the loop waits for
  // its own instructions, and the compiler would make more of them.
  static constexpr uint32_t kSums = (kBarriers + 16 * (kWeightStages + kXStages) + 127) / 128 * 128;
  static constexpr uint32_t kSumsBytes = kPanelTiles * kTileRows * N * 4;  // a block leaves so many
  static constexpr uint32_t kGathered = N > 16 && kSums < kBytes ? (kBytes - kSums) / kSumsBytes : 0;
};

// This walks round a ring: it knows the stage at hand, and the parity of its use.
template <uint32_t kStages>
class RingCursor {
 public:
  __device__ __forceinline__ uint32_t stage() const { return kCounts ? at_ % kStages : at_; }
  __device__ __forceinline__ uint32_t parity() const { return kCounts ? at_ / kStages % 2 : parity_; }
  __device__ __forceinline__ void advance() {
    ++at_;
    if constexpr (!kCounts) {
      if (at_ < kStages) return;
      at_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  static constexpr bool kCounts = std::has_single_bit(kStages);  // at_ goes on counting
  uint32_t at_ = 0, parity_ = 0;
};
// A ring has these barriers: one a stage for full, then one a stage for empty.
template <uint32_t kStages>
struct RingBarriers {
  uint32_t address;
  __device__ __forceinline__ Barrier full(uint32_t stage) const { return Barrier(address + 8 * stage); }
  __device__ __forceinline__ Barrier empty(uint32_t stage) const { return Barrier(address + 8 * (kStages + stage)); }
  // A stage is full when so many threads have filled their part, and empty when so many warps have read it.
  __device__ __forceinline__ void init(uint32_t fillers, uint32_t readers) const {
    for (uint32_t s = 0; s < kStages; ++s) {
      full(s).init(fillers);
      empty(s).init(readers);
    }
  }
};

// This walks through the stages of all panels.
struct StageWalk {
  uint32_t stages_of_panel;  // a panel has so many
  uint32_t panel, stage;     // which panel, which of its stages
  __device__ StageWalk(uint32_t number, uint32_t a_panel_has)
      : stages_of_panel(a_panel_has), panel(number / stages_of_panel), stage(number % stages_of_panel) {}
  __device__ __forceinline__ void advance() {
    if (++stage < stages_of_panel) return;
    stage = 0;
    ++panel;
  }
};

// Returns how large teams of so many pairs may be. 0: there are more panels than pairs.
__host__ __device__ inline uint32_t most_team(uint32_t panels, uint32_t stages_of_panel, uint32_t pairs) {
  const uint32_t all = pairs / panels, most = stages_of_panel < kMostTeam ? stages_of_panel : kMostTeam;
  return all < most ? all : most;
}
// The stages of all panels, in order, are shared out among pairs, or those of each panel among the pairs of a team.
struct StageShares {
  uint32_t pairs_of_team;    // 1: there are no teams, and a pair may share two panels
  uint32_t stages_of_panel;  // a panel has so many
  uint32_t stages_of_pair;   // a pair has so many
  uint32_t longer;           // so many of the first pairs have one more
  __device__ StageShares(uint32_t panels, uint32_t a_panel_has, uint32_t pairs, uint32_t a_team_has)
      : pairs_of_team(a_team_has),
        stages_of_panel(a_panel_has),
        stages_of_pair(panels * stages_of_panel / pairs),
        longer(panels * stages_of_panel % pairs) {}
  __device__ __forceinline__ uint32_t begin(uint32_t pair) const {
    if (pairs_of_team > 1) {
      return pair / pairs_of_team * stages_of_panel + pair % pairs_of_team * stages_of_panel / pairs_of_team;
    }
    return pair * stages_of_pair + min(pair, longer);
  }
};

// This is a block's share of a product, with the rings through which it comes.
template <PackedFormat F, int N>
struct TileGemmBlock {
  using Format = F;
  using Layout = TileGemmLayout<F, N>;
  static constexpr int kRows = N;
  static constexpr uint32_t kXReaders = kClusterBlocks, kStagesAtOnce = 1;
  static constexpr uint32_t kXBytes = Layout::kXBytes, kWeightBytes = Layout::kWeightBytes;
  static constexpr uint32_t kTurns = kStageK<F> / TileGemmShape<N>::kTurnK;  // a stage of weights has so many turns

  const MatvecArgs& a;
  const TileGemmPointers& p;
  uint32_t bands, band, pair, rank;  // bands with live rows; the rank in the pair
  uint32_t tiles, segments, stages_of_panel;
  uint32_t team, pairs, part;  // so many pairs are a team; the band's pairs; which of its team this one is
  PreparedHalves halves;
  StageShares shares;
  uint32_t first, last;  // stages
  uint32_t base;         // shared memory begins here
  RingBarriers<Layout::kWeightStages> of_weights;
  RingBarriers<Layout::kXStages> of_x;

  // most_bands counts the bands of all rows, live or not: the memory of x has room for them.
  __device__ __forceinline__ TileGemmBlock(const MatvecArgs& args, const TileGemmPointers& pointers,
                                           uint32_t most_bands, bool in_teams, const uint8_t* memory)
      : a(args),
        p(pointers),
        bands(most_bands == 1 ? 1 : min(max(1U, (*p.live + N - 1) / N), most_bands)),
        band(blockIdx.x / kClusterBlocks % bands),
        pair(blockIdx.x / kClusterBlocks / bands),
        rank(blockIdx.x % kClusterBlocks),
        tiles(a.map.tiles()),
        segments(segments_of<F>(a.k)),
        stages_of_panel(stages_of<F>(a.k)),
        team(in_teams ? most_team(panels_of(tiles), stages_of_panel, gridDim.x / kClusterBlocks / bands) : 1),
        pairs(in_teams ? team * panels_of(tiles) : gridDim.x / kClusterBlocks / bands),
        part(pair % team),
        halves(prepared_halves<F>(a.k, N, most_bands)),
        shares(panels_of(tiles), stages_of_panel, pairs, team),
        first(pair < pairs ? shares.begin(pair) : 0),
        last(pair < pairs ? shares.begin(pair + 1) : 0),
        base(shared_address(memory)),
        of_weights{base + Layout::kBarriers},
        of_x{base + Layout::kBarriers + 16 * Layout::kWeightStages} {
    if (threadIdx.x == 0) {
      of_weights.init(kWeightFillers, kPanelTiles);
      of_x.init(1, kClusterBlocks * kPanelTiles);
      publish_barriers();
    }
    __syncthreads();
    this_cluster().arrive();
  }
  // Returns the number of the block that has this one's rank in another pair of the band.
  __device__ __forceinline__ uint32_t block_of(uint32_t other) const {
    return (other * bands + band) * kClusterBlocks + rank;
  }

  // Returns which of the cluster's blocks the lane tells that this one has read x; only the first kXReaders lanes do.
  __device__ __forceinline__ uint32_t x_writer() const { return lane_id() % kXReaders; }
  // Returns where a warp's x begins in a stage of the ring.
  static __device__ __forceinline__ uint32_t x_of_warp(uint32_t) { return 0; }
  // Returns the stage at which a warp ends that multiplies what the block has of a panel from stage s on.
  __device__ __forceinline__ uint32_t end_of_panel(uint32_t s) const {
    return min(last, (s / stages_of_panel + 1) * stages_of_panel);
  }
  // Panels have kXReaders parts each, which are counted over all of them: the block has this one of its first panel.
  __device__ __forceinline__ uint32_t part_of_panels() const { return rank; }
};

// ---- How a block fills its rings. So many blocks of its cluster, Block::kXReaders, read the same x ----------------------
// A stage of a ring has Block::kStagesAtOnce consecutive stages of K. This returns how many the block has left of these
// from stage s on: at its end there may be fewer.
template <class Block>
__device__ __forceinline__ uint32_t stages_there(const Block& b, uint32_t s) {
  return Block::kStagesAtOnce == 1 ? 1 : min(Block::kStagesAtOnce, b.last - s);
}
// A lane of each of the warps that fill the ring of weights calls this, before the wait. Every kWeightFillers-th tile is
// the warp's.
template <class Block>
__device__ __forceinline__ void fill_weights(const Block& b, uint32_t filler) {
  using F = typename Block::Format;
  using Layout = typename Block::Layout;
  constexpr uint32_t kTiles = kPanelTiles / Block::kStagesAtOnce;
  RingCursor<Layout::kWeightStages> cursor;
  StageWalk walk(b.first, b.stages_of_panel);
  uint32_t own = (kPanelTiles - filler + kWeightFillers - 1) / kWeightFillers, before = 0;
  for (uint32_t s = b.first; s < b.last; s += Block::kStagesAtOnce, ++before, cursor.advance()) {
    if (before >= Layout::kFirstStages && before < Layout::kWeightStages) {
      b.of_weights.full(before - Layout::kFirstStages).wait(0);
    }
    const uint32_t there = kTiles * stages_there(b, s);
    if (there < kPanelTiles) own = (there - min(filler, there) + kWeightFillers - 1) / kWeightFillers;
    const Barrier full = b.of_weights.full(cursor.stage());
    b.of_weights.empty(cursor.stage()).wait(cursor.parity() ^ 1);
    full.arrive_expecting(own * kTileStageBytes<F>);
    const uint32_t first_tile = (walk.panel * Block::kXReaders + b.part_of_panels()) * kTiles;
#pragma unroll
    for (uint32_t i = 0; i < kPanelTiles; i += kWeightFillers) {
      if (i + filler >= there) break;
      const uint32_t segment = (walk.stage + (i + filler) / kTiles) * kStageSegments<F>,
                     segments = min(b.segments - segment, kStageSegments<F>);
      const uint32_t tile = min(first_tile + (i + filler) % kTiles, b.tiles - 1);
      const uint8_t* from = b.p.weights + (size_t{tile} * b.segments + segment) * F::kSegmentBytes;
      const uint32_t to = b.base + cursor.stage() * Block::kWeightBytes + (i + filler) * kTileStageBytes<F>;
      full.copy(to, from, segments * F::kSegmentBytes, Barrier::kEvictFirst);
      // After the last segment x is zero, and any weights will do.
      for (uint32_t c = segments; c < kStageSegments<F>; ++c) {
        full.copy(to + c * F::kSegmentBytes, from, F::kSegmentBytes, Barrier::kEvictFirst);
      }
    }
    for (uint32_t i = 0; i < Block::kStagesAtOnce; ++i) walk.advance();
  }
}
// Returns how many bytes of memory a band of x takes: numbers of its rows follow x before a norm.
template <class Block>
__device__ __forceinline__ size_t x_band_bytes(const Block& b) {
  const auto columns = static_cast<uint32_t>(sdk::number_columns(b.a.k, Block::kRows));
  return b.halves.band_bytes() + (b.a.x_normed != 0 ? size_t{columns} * b.halves.rows * 2 : 0);
}
// One lane calls it, after the wait. It fills this block's part of each stage of x, for all that read it.
template <class Block>
__device__ __forceinline__ void fill_x(const Block& b) {
  constexpr bool kAlone = Block::kXReaders == 1;
  constexpr uint32_t kStageBytes = Block::kXBytes / Block::kStagesAtOnce, kPart = kStageBytes / Block::kXReaders;
  const uint32_t at = kAlone ? 0 : b.rank * kPart;
  const auto readers = static_cast<uint16_t>(kAlone ? 1U << b.rank : (1U << Block::kXReaders) - 1);
  RingCursor<Block::Layout::kXStages> cursor;
  StageWalk walk(b.first, b.stages_of_panel);
  const uint8_t* x = b.p.prepared + b.band * x_band_bytes(b) + at;
  for (uint32_t s = b.first; s < b.last; s += Block::kStagesAtOnce) {
    const uint8_t* from = x + size_t{walk.stage} * Block::kTurns * kStageBytes;
    const uint32_t there = stages_there(b, s);
    for (uint32_t turn = 0; turn < Block::kTurns; ++turn, cursor.advance()) {
      const Barrier full = b.of_x.full(cursor.stage());
      b.of_x.empty(cursor.stage()).wait(cursor.parity() ^ 1);
      full.arrive_expecting(there * kStageBytes);
      for (uint32_t i = 0; i < there; ++i) {
        full.copy_to_cluster(b.base + Block::Layout::kX + cursor.stage() * Block::kXBytes + i * kStageBytes + at,
                             from + size_t{i * Block::kTurns + turn} * kStageBytes, kPart, readers);
      }
    }
    for (uint32_t i = 0; i < Block::kStagesAtOnce; ++i) walk.advance();
  }
}
// All warps that do not multiply call it. x comes once the blocks of the cluster have met, and after the wait.
template <class Block>
__device__ __forceinline__ void fill_rings(const Block& b, uint32_t warp) {
  constexpr uint32_t kXFiller = TileGemmShape<Block::kRows>::kXFiller;
  if (warp < kXFiller && elect_lane()) fill_weights(b, warp - kPanelTiles);
  __syncwarp();
  this_cluster().wait();
  wait();
  if (warp == kXFiller && elect_lane()) fill_x(b);
}

}  // namespace detail
}  // namespace tenon::cuda
