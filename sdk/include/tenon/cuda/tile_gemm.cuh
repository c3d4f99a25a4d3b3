// Products of packed weights (packed.cuh) with up to 256 rows of x, on sm_90a: weights are read once, as they are
// stored, and become halves in registers; x is one half a value, each row scaled by a power of two that keeps it in
// range. RMSNorm comes before, and bias, SiLU-multiply and residual after.
//
// Blocks work in pairs, which are clusters. A pair multiplies panels of weights by all rows of x; each of its blocks has
// half of a panel's tiles, and each of a block's warpgroups four of those. The panels' stages along K (kStageK)
// are shared out evenly among the pairs, so a panel's may lie with several: the pair that has its first stage finishes
// it. The others leave their sums in the op's scratch memory and say so in its flags; they have them early, since a
// panel's later stages are the first that a pair multiplies. Sums are added in the pairs' order, so equal launches give
// equal bits.
//
// More than 128 rows are one part, or two that are multiplied by pairs of their own (TileGemm::parts()).
//
// Four more warps of a block keep rings in shared memory full: three one of weights, begun before the wait, the fourth one
// of x. A single warp would need longer to ask for a stage of weights, tile by tile, than memory needs to bring it. Each
// block of a pair reads half of x from L2 and writes it into the shared memory of both: what comes through L2 would be
// the limit otherwise.
#pragma once

#include <algorithm>
#include <bit>
#include <string_view>

#include "tenon/cuda/cluster.cuh"
#include "tenon/cuda/half_fragments.cuh"
#include "tenon/cuda/matvec.cuh"
#include "tenon/cuda/warpgroup.cuh"

namespace tenon::cuda {

inline constexpr uint32_t kTileGemmSince = 9, kTileGemmRows = 256;  // rows for which it pays; rows at most
namespace detail {

inline constexpr uint32_t kWeightFillers = 3;  // warps
inline constexpr uint32_t kPair = 2, kPanelTiles = 8, kGroupThreads = 128, kPreparedK = 64, kMostPrepareThreads = 1024;

// x as the product takes it: halves, [part][64 k][8 k][row][8 values], the values in the order of A fragments; then the
// factors that undo the rows' scales.
struct PreparedHalves {
  uint32_t rows, parts, blocks;  // rows of a part; blocks of kPreparedK
  __host__ __device__ uint32_t block_bytes() const { return kPreparedK * rows * 2; }
  __host__ __device__ size_t part_bytes() const { return size_t{blocks} * block_bytes(); }
  __host__ __device__ size_t factors() const { return parts * part_bytes(); }
  __host__ __device__ size_t bytes() const { return factors() + rows * parts * sizeof(float); }
};
template <class F>
__host__ __device__ inline uint32_t stages_of(uint32_t k) {
  return (k + kStageK<F> - 1) / kStageK<F>;
}
template <class F>
__host__ __device__ inline PreparedHalves prepared_halves(uint32_t k, uint32_t rows, uint32_t parts) {
  return {rows, parts, stages_of<F>(k) * (kStageK<F> / kPreparedK)};
}

// Panels of a pair, of so many tiles.
__host__ __device__ inline uint32_t panels_of(uint32_t tiles) {
  constexpr uint32_t kTiles = kPair * kPanelTiles;
  return (tiles + kTiles - 1) / kTiles;
}

template <class F>
inline constexpr uint32_t kStageSegments = kStageK<F> / F::kSegmentK;
template <class F>
inline constexpr uint32_t kTileStageBytes = kStageSegments<F> * F::kSegmentBytes;
// A warp multiplies a tile. Where a lane has so many sums that a kernel's even share of registers does not hold them, the
// warpgroup that fills the rings gives up most of its own.
template <int N>
struct TileGemmShape {
  static constexpr uint32_t kTurnK = N <= 64 ? 128 : 64;  // multiplied at once: a stage of x
  static constexpr bool kMovesRegisters = N == kTileGemmRows;
  static constexpr uint32_t kKept = 24, kTaken = 240;                 // registers of a lane that fills, that multiplies
  static constexpr uint32_t kXFiller = kPanelTiles + kWeightFillers;  // a warp
  static constexpr uint32_t kMultiplying = 32 * kPanelTiles, kThreads = 32 * (kXFiller + 1);
};
// Where things are in a block's shared memory: weights first, then the offsets below.
template <class F, int N>
struct TileGemmLayout {
  static constexpr uint32_t kBytes = 227 << 10;                               // all that a block of an H100 may have
  static constexpr uint32_t kWeightBytes = kPanelTiles * kTileStageBytes<F>;  // of a stage
  static constexpr uint32_t kXBytes = TileGemmShape<N>::kTurnK * N * 2;       // of a stage
  static constexpr uint32_t kXStages = N == kTileGemmRows ? 4 : N == 128 ? 6 : N == 64 ? 5 : 8;
  static constexpr uint32_t kRest = kBytes - kXStages * (kXBytes + 16) - 128;
  static constexpr uint32_t kFit = kRest / (kWeightBytes + 16);
  static constexpr uint32_t kWeightStages = kFit >= 8 ? 8 : kFit;
  static constexpr uint32_t kX = (kWeightStages * kWeightBytes + 127) / 128 * 128;
  static constexpr uint32_t kBarriers = kX + kXStages * kXBytes;
};

// A place on a ring's way round: which stage, and the parity of its use.
template <uint32_t kStages>
class RingPlace {
 public:
  __device__ __forceinline__ explicit RingPlace(uint32_t first = 0) : at_(first) {}
  __device__ __forceinline__ uint32_t stage() const { return kCounts ? at_ % kStages : at_; }
  __device__ __forceinline__ uint32_t parity() const { return kCounts ? at_ / kStages % 2 : parity_; }
  __device__ __forceinline__ void advance(uint32_t by = 1) {
    at_ += by;
    if constexpr (!kCounts) {
      if (at_ < kStages) return;
      at_ -= kStages;
      parity_ ^= 1;
    }
  }

 private:
  static constexpr bool kCounts = std::has_single_bit(kStages);  // at_ goes on counting
  uint32_t at_, parity_ = 0;
};
// The barriers of a ring's stages: full, then empty.
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

// A place among the stages of all panels.
struct StageWalk {
  uint32_t a_panel, panel, stage;  // stages of a panel; which panel, which of its stages
  __device__ StageWalk(uint32_t s, uint32_t stages_a_panel)
      : a_panel(stages_a_panel), panel(s / a_panel), stage(s % a_panel) {}
  __device__ __forceinline__ void advance() {
    if (++stage < a_panel) return;
    stage = 0;
    ++panel;
  }
};

// Stages of all panels, in order, shared out among pairs.
struct StageShares {
  uint32_t a_pair, longer;  // so many of the first pairs have one more
  __device__ StageShares(uint32_t stages, uint32_t pairs) : a_pair(stages / pairs), longer(stages % pairs) {}
  __device__ __forceinline__ uint32_t begin(uint32_t pair) const { return pair * a_pair + min(pair, longer); }
};

}  // namespace detail

struct TileGemmPointers : MatvecPointers {
  float4* sums;     // scratch
  uint32_t* flags;  // one a block, zero
};

namespace detail {

// A block's share of a product, and the rings through which it comes.
template <class F, int N>
struct TileGemmBlock {
  using Layout = TileGemmLayout<F, N>;
  static constexpr uint32_t kXBytes = Layout::kXBytes, kWeightBytes = Layout::kWeightBytes;
  static constexpr uint32_t kTurns = kStageK<F> / TileGemmShape<N>::kTurnK;  // of a stage of weights

  const MatvecArgs& a;
  const TileGemmPointers& p;
  uint32_t parts, part, pair, pairs, rank;  // pair, pairs: of the part; rank: in the pair
  uint32_t tiles, segments, a_panel;        // a_panel: stages
  PreparedHalves halves;
  StageShares shares;
  uint32_t first, last;  // stages
  uint32_t base;         // of shared memory
  RingBarriers<Layout::kWeightStages> of_weights;
  RingBarriers<Layout::kXStages> of_x;

  __device__ __forceinline__ TileGemmBlock(const MatvecArgs& args, const TileGemmPointers& pointers, uint32_t all_parts,
                                           const uint8_t* memory)
      : a(args),
        p(pointers),
        parts(all_parts),
        part(blockIdx.x / kPair % parts),
        pair(blockIdx.x / kPair / parts),
        pairs(gridDim.x / kPair / parts),
        rank(blockIdx.x % kPair),
        tiles(a.map.tiles()),
        segments(segments_of<F>(a.k)),
        a_panel(stages_of<F>(a.k)),
        halves(prepared_halves<F>(a.k, N, parts)),
        shares(panels_of(tiles) * a_panel, pairs),
        first(shares.begin(pair)),
        last(shares.begin(pair + 1)),
        base(shared_address(memory)),
        of_weights{base + Layout::kBarriers},
        of_x{base + Layout::kBarriers + 16 * Layout::kWeightStages} {
    if (threadIdx.x == 0) {
      of_weights.init(kWeightFillers, kPanelTiles);
      of_x.init(1, kPair * kPanelTiles);
      publish_barriers();
    }
    this_cluster().sync();
  }
  // The block that has this one's place in another pair of the part.
  __device__ __forceinline__ uint32_t block_of(uint32_t other) const { return (other * parts + part) * kPair + rank; }

  // By a lane of each of the warps that fill this ring, before the wait: every kWeightFillers-th tile is the warp's.
  __device__ __forceinline__ void fill_weights(uint32_t filler) const {
    RingPlace<Layout::kWeightStages> place;
    StageWalk walk(first, a_panel);
    const uint32_t own = (kPanelTiles - filler + kWeightFillers - 1) / kWeightFillers;
    for (uint32_t s = first; s < last; ++s, place.advance(), walk.advance()) {
      const Barrier full = of_weights.full(place.stage());
      of_weights.empty(place.stage()).wait(place.parity() ^ 1);
      full.arrive_expecting(own * kTileStageBytes<F>);
      const uint32_t segment = walk.stage * kStageSegments<F>, there = min(segments - segment, kStageSegments<F>);
      const uint32_t first_tile = (walk.panel * kPair + rank) * kPanelTiles;
#pragma unroll
      for (uint32_t i = 0; i < kPanelTiles; i += kWeightFillers) {
        if (i + filler >= kPanelTiles) break;
        const uint32_t tile = min(first_tile + i + filler, tiles - 1);
        const uint8_t* from = p.weights + (size_t{tile} * segments + segment) * F::kSegmentBytes;
        const uint32_t to = base + place.stage() * kWeightBytes + (i + filler) * kTileStageBytes<F>;
        full.copy(to, from, there * F::kSegmentBytes, Barrier::kEvictFirst);
        // After the last segment x is zero, and any weights will do.
        for (uint32_t c = there; c < kStageSegments<F>; ++c) {
          full.copy(to + c * F::kSegmentBytes, from, F::kSegmentBytes, Barrier::kEvictFirst);
        }
      }
    }
  }
  // By a lane, after the wait: its half of each stage, for both blocks.
  __device__ __forceinline__ void fill_x() const {
    constexpr uint32_t kHalf = kXBytes / kPair;
    RingPlace<Layout::kXStages> place;
    StageWalk walk(first, a_panel);
    const uint8_t* x = p.prepared + part * halves.part_bytes() + rank * kHalf;
    for (uint32_t s = first; s < last; ++s, walk.advance()) {
      const uint8_t* from = x + size_t{walk.stage} * kTurns * kXBytes;
      for (uint32_t turn = 0; turn < kTurns; ++turn, place.advance()) {
        const Barrier full = of_x.full(place.stage());
        of_x.empty(place.stage()).wait(place.parity() ^ 1);
        full.arrive_expecting(kXBytes);
        full.copy_to_cluster(base + Layout::kX + place.stage() * kXBytes + rank * kHalf, from + size_t{turn} * kXBytes,
                             kHalf, (1 << kPair) - 1);
      }
    }
  }
};

// What a warpgroup has of a panel: sums of 64 packed rows by N rows, 16 packed rows a warp, of which a lane has rows g
// and g + 8, g = lane / 4. After the wait.
template <class F, int N>
class PanelSums {
 public:
  using Block = TileGemmBlock<F, N>;
  using Shape = TileGemmShape<N>;
  __device__ __forceinline__ explicit PanelSums(const Block& b)
      : b_(b),
        warp_(__shfl_sync(~0U, threadIdx.x / 32, 0)),  // known to the compiler to be the same in all lanes
        rows_before_(b.part * N),
        live_(min(*b.p.live, b.a.rows) - min(min(*b.p.live, b.a.rows), rows_before_)),
        x_empty_(b.of_x.empty(0).in_cluster(lane_id() % kPair)),
        x_described_(warpgroup::describe(b.base + Block::Layout::kX, kCoresOf8)) {}

  // What the pair has of the panel that stage s is in; returns the stage after.
  __device__ __forceinline__ uint32_t multiply(uint32_t s) {
    const uint32_t end = min(b_.last, (s / b_.a_panel + 1) * b_.a_panel);
#pragma unroll
    for (float& v : sum_) v = 0;
    // So many stages have as many turns as there are sets of fragments, or a multiple.
    constexpr uint32_t kAtOnce = 1 + Block::kTurns % 2;
    for (; s + kAtOnce <= end; s += kAtOnce) {
      multiply_stage<0>();
      if constexpr (kAtOnce == 2) multiply_stage<1>();
    }
    if (s < end) multiply_stage<0>();
    warpgroup::wait<0>();
    warpgroup::hold(sum_);
    release_x();
    releases_ = false;
    return end;
  }

  // For the pair that finishes the panel.
  __device__ __forceinline__ void leave() const {
    float4* to = left_by(blockIdx.x);
#pragma unroll
    for (uint32_t i = 0; i < kFours; ++i) {
      __stcg(to + i * kGroupThreads, float4{sum_[4 * i], sum_[4 * i + 1], sum_[4 * i + 2], sum_[4 * i + 3]});
    }
    __threadfence();
    named_sync(kSumBarrier, Shape::kMultiplying);
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(b_.p.flags + blockIdx.x) : "memory");
  }
  // Adds what others have left.
  __device__ __forceinline__ void gather(uint32_t panel) {
    uint32_t after = b_.pair + 1;
    while (after < b_.pairs && b_.shares.begin(after) < (panel + 1) * b_.a_panel) ++after;
    if (after == b_.pair + 1) return;
    for (uint32_t next = b_.pair + 1 + threadIdx.x; next < after; next += Shape::kMultiplying) {
      uint32_t *flag = b_.p.flags + b_.block_of(next), there = 0;
      while (there == 0) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
      *flag = 0;
    }
    named_sync(kSumBarrier, Shape::kMultiplying);
    for (uint32_t next = b_.pair + 1; next < after; ++next) {
      const float4* from = left_by(b_.block_of(next));
#pragma unroll
      for (uint32_t i = 0; i < kFours; ++i) {
        const float4 v = __ldcg(from + i * kGroupThreads);
        sum_[4 * i] += v.x, sum_[4 * i + 1] += v.y, sum_[4 * i + 2] += v.z, sum_[4 * i + 3] += v.w;
      }
    }
  }
  // Makes y of the sums.
  __device__ __forceinline__ void finish(uint32_t panel) {
    const uint32_t tile = (panel * kPair + b_.rank) * kPanelTiles + warp_,
                   packed_row = tile * kTileRows + lane_id() / 4;
    const bool there = tile < b_.tiles;
    const uint32_t column[2] = {there ? b_.a.map.column(packed_row) : UINT32_MAX,
                                there ? b_.a.map.column(packed_row + 8) : UINT32_MAX};
    scale(packed_row, column);
    float* const y = b_.p.y + rows_before_ * b_.a.y_stride;
    if (b_.a.silu != 0) {
      if (column[0] == UINT32_MAX) return;
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i) {
        const float gate = sum(i, 0);
        if (row(i) < live_) y[row(i) * b_.a.y_stride + column[0]] = gate / (1 + expf(-gate)) * sum(i, 1);
      }
      return;
    }
    const float* const addend = b_.p.addend + (b_.p.addend != nullptr ? rows_before_ * b_.a.addend_stride : 0);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      if (column[half] == UINT32_MAX) continue;
      if (b_.p.addend != nullptr) {  // all of it before the first store, which no load could pass
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) {
          if (row(i) < live_) sum(i, half) += addend[row(i) * b_.a.addend_stride + column[half]];
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i) {
        if (row(i) < live_) y[row(i) * b_.a.y_stride + column[half]] = sum(i, half);
      }
    }
  }

 private:
  static constexpr uint32_t kSums = N / 2, kFours = kSums / 4, kRows = N / 4;  // of a lane
  static constexpr uint32_t kCoresOf8 = 16 * N;                                // bytes
  static constexpr uint32_t kSumBarrier = 1;
  static constexpr uint32_t kTurnQuads = Shape::kTurnK / 64;

  // The part's row that a lane's i-th is, and its sum for packed row g or g + 8.
  static __device__ __forceinline__ uint32_t row(uint32_t i) { return i / 2 * 8 + 2 * (lane_id() % 4) + i % 2; }
  __device__ __forceinline__ float& sum(uint32_t i, uint32_t half) { return sum_[i / 2 * 4 + half * 2 + i % 2]; }
  __device__ __forceinline__ float4* left_by(uint32_t block) const {
    return b_.p.sums + (size_t{block} * (kPanelTiles / 4) + warp_ / 4) * kFours * kGroupThreads +
           threadIdx.x % kGroupThreads;
  }
  __device__ __forceinline__ void release_x() const {
    if (releases_) Barrier::arrive_in_cluster(x_empty_ + 8 * under_way_);
  }

  // kFirst: which fragments the first turn gets.
  template <uint32_t kFirst>
  __device__ __forceinline__ void multiply_stage() {
#pragma unroll
    for (uint32_t turn = 0; turn < Block::kTurns; ++turn) multiply_turn(turn, fragments_[(kFirst + turn) % 2]);
  }
  // The product of this turn is under way when this returns, and the one before it done.
  __device__ __forceinline__ void multiply_turn(uint32_t turn, uint32_t (&fragments)[kTurnQuads][4][4]) {
    if (turn == 0) b_.of_weights.full(weights_.stage()).wait(weights_.parity());
    const uint32_t weights = b_.base + weights_.stage() * Block::kWeightBytes + warp_ * kTileStageBytes<F>;
#pragma unroll
    for (uint32_t q = 0; q < kTurnQuads; ++q) HalfFragments<F>::load(weights, turn * kTurnQuads + q, fragments[q]);
    if (turn + 1 == Block::kTurns) {
      __syncwarp();
      if (elect_lane()) b_.of_weights.empty(weights_.stage()).arrive();
      weights_.advance();
    }
    const uint32_t stage = x_.stage();
    b_.of_x.full(stage).wait(x_.parity());
#pragma unroll
    for (uint32_t step = 0; step < 4 * kTurnQuads; ++step) warpgroup::hold(fragments[step / 4][step % 4]);
    warpgroup::begin();
#pragma unroll
    for (uint32_t step = 0; step < 4 * kTurnQuads; ++step) {
      const uint32_t offset = stage * Block::kXBytes + 2 * step * kCoresOf8;
      warpgroup::multiply<typename F::Half>(sum_, fragments[step / 4][step % 4],
                                            warpgroup::described_at(x_described_, offset));
    }
    warpgroup::commit();
    warpgroup::wait<1>();
    release_x();
    under_way_ = stage;
    releases_ = lane_id() < kPair;
    x_.advance();
  }

  __device__ __forceinline__ void scale(uint32_t packed_row, const uint32_t (&column)[2]) {
    float scale[2] = {1, 1}, bias[2] = {};
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      if (column[half] == UINT32_MAX) continue;
      if constexpr (F::kTotal) scale[half] = b_.p.scales[packed_row + 8 * half];
      if (b_.p.bias != nullptr) bias[half] = b_.p.bias[column[half]];
    }
    const auto* factors = reinterpret_cast<const float*>(b_.p.prepared + b_.halves.factors()) + rows_before_;
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      const float factor = row(i) < live_ ? factors[row(i)] : 0;
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) sum(i, half) = fmaf(sum(i, half), factor * scale[half], bias[half]);
    }
  }

  const Block& b_;
  uint32_t warp_, rows_before_, live_;  // live_: of the part
  RingPlace<Block::Layout::kWeightStages> weights_;
  RingPlace<Block::Layout::kXStages> x_;
  uint32_t x_empty_;      // in the cluster: where the block's barriers are that the lane arrives at
  uint64_t x_described_;  // the ring's first stage
  float sum_[kSums];
  uint32_t fragments_[2][kTurnQuads][4][4];  // of the product that is under way, and of the next one
  uint32_t under_way_ = 0;                   // the stage of x that is read, and
  bool releases_ = false;                    // whether there is one, and the lane says when that is done
};

}  // namespace detail

template <class F, int N>
__global__ void __launch_bounds__(detail::TileGemmShape<N>::kThreads, 1)
    tile_gemm_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ TileGemmPointers p, uint32_t parts) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  trigger();
  const detail::TileGemmBlock<F, N> block(a, p, parts, memory);
  const uint32_t warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  using Shape = detail::TileGemmShape<N>;
  if (warp >= detail::kPanelTiles) {
    if constexpr (Shape::kMovesRegisters) warpgroup::keep_registers<Shape::kKept>();
    if (warp < Shape::kXFiller && elect_lane()) block.fill_weights(warp - detail::kPanelTiles);
    wait();
    if (warp == Shape::kXFiller && elect_lane()) block.fill_x();
  } else {
    if constexpr (Shape::kMovesRegisters) warpgroup::take_registers<Shape::kTaken>();
    wait();
    detail::PanelSums<F, N> sums(block);
    for (uint32_t s = block.first; s < block.last;) {
      const uint32_t panel = s / block.a_panel;
      const bool finishes = s % block.a_panel == 0;
      s = sums.multiply(s);
      if (finishes) {
        sums.gather(panel);
        sums.finish(panel);
      } else {
        sums.leave();
      }
    }
  }
  this_cluster().sync();  // the other block's last arrivals are at barriers of this one
#endif
}

// Where value k of a row lies in shared memory: of each 32 the octets are turned, so that what a core takes of four
// blocks lies in different banks.
__device__ __forceinline__ uint32_t turned(uint32_t k) {
  return k / 32 * 32 + (k / 8 + k / 32) % 4 * 8 + k % 8;
}

// A block a row. Rows that there are not become zeros.
template <class F>
__global__ void __launch_bounds__(detail::kMostPrepareThreads)
    prepare_halves_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ MatvecPointers p,
                          const __grid_constant__ detail::PreparedHalves to) {
  using namespace detail;
  using H = typename F::Half;
  constexpr uint32_t kWarps = kMostPrepareThreads / 32;
  extern __shared__ __align__(128) float values[];
  __shared__ float squares[kWarps];
  __shared__ uint32_t greatest[kWarps];
  wait();
  const uint32_t row = blockIdx.x, all = to.blocks * kPreparedK;
  const uint32_t k_there = row < min(*p.live, a.rows) ? a.k : 0;
  const float* x = p.x + row * a.x_stride;
  float square = 0;
  uint32_t largest = 0;  // magnitude's bits
#pragma unroll 2
  for (uint32_t k = 8 * threadIdx.x; k < all; k += 8 * blockDim.x) {
    float v[8], norm[8];
    load_octet(x, k, k_there, v);
    if (p.norm != nullptr) load_octet(p.norm, k, k_there, norm);
    for (uint32_t i = 0; i < 8; ++i) {
      square = fmaf(v[i], v[i], square);
      if (p.norm != nullptr) v[i] *= norm[i];
      largest = max(largest, __float_as_uint(v[i]) & 0x7fffffff);
    }
    auto* octet = reinterpret_cast<float4*>(values + turned(k));
    octet[0] = {v[0], v[1], v[2], v[3]}, octet[1] = {v[4], v[5], v[6], v[7]};
  }
  square = warp_sum(square);
  largest = __reduce_max_sync(~0U, largest);
  if (lane_id() == 0) squares[threadIdx.x / 32] = square, greatest[threadIdx.x / 32] = largest;
  __syncthreads();
  square = 0;
  for (uint32_t w = 0; w < blockDim.x / 32; ++w) square += squares[w], largest = max(largest, greatest[w]);
  float scale = 1, factor = 1;
  if constexpr (F::kScaled) {
    // The exponent's bits of 2^13 over the largest's power of two.
    const uint32_t bits = min(267 - (largest >> 23), 253U);
    scale = __uint_as_float(bits << 23), factor = __uint_as_float((254 - bits) << 23);
  }
  if (p.norm != nullptr) factor *= rsqrtf(square / static_cast<float>(a.k) + a.eps);

  // 16 bytes at a time, what a core has of a row: of the two k-steps in 32 k, one's first or second half.
  for (uint32_t piece = threadIdx.x; piece < all / 8; piece += blockDim.x) {
    const float up = F::kStaggered && piece % 2 == 1 ? scale / 16 : scale;
    uint32_t out[4];
    for (uint32_t t = 0; t < 4; ++t) {
      const float2 v = *reinterpret_cast<const float2*>(values + turned(piece / 4 * 32 + 8 * t + piece % 4 * 2));
      out[t] = to_halves<H>(v.x * up, v.y * up);
    }
    auto* at = p.prepared + row / to.rows * to.part_bytes() + size_t{piece / 8} * to.block_bytes() +
               (piece % 8 * to.rows + row % to.rows) * 16;
    *reinterpret_cast<uint4*>(at) = {out[0], out[1], out[2], out[3]};
  }
  if (threadIdx.x == 0) reinterpret_cast<float*>(p.prepared + to.factors())[row] = factor;
}

// How a product is launched; as Matvec, whose MatvecArgs::prepared is always 1 here.
template <class F>
class TileGemm {
 public:
  static constexpr const char* kName = "tile_gemm";
  // Whether a plugin built for `targets` has the kernels for a GPU of that architecture.
  static constexpr bool fits(std::string_view targets, uint32_t arch) {
    constexpr uint32_t kHopper = 90;
    return arch == kHopper && targets.find("sm_90a") != std::string_view::npos;
  }
  static constexpr uint32_t direct_classes(const MatvecArgs&) { return 0; }
  static uint32_t prepared_classes(const MatvecArgs&) { return TENON_BLOCKS_LARGE; }
  static uint64_t prepared_bytes(const MatvecArgs& a) { return halves(a).bytes(); }
  static uint64_t scratch_bytes(const MatvecArgs& a) {
    return with_rows(a,
                     [&]<int N>() { return uint64_t{grid(a)} * N * detail::kPanelTiles * kTileRows * sizeof(float); });
  }
  static uint64_t zeroed_bytes(const MatvecArgs& a) { return grid(a) * sizeof(uint32_t); }

  static void prepare(const MatvecArgs& a, const MatvecPointers& p, const Launch& launch) {
    const detail::PreparedHalves to = halves(a);
    const uint32_t k = to.blocks * detail::kPreparedK;
    launch(&prepare_halves_kernel<F>,
           {.blocks = {to.rows * to.parts},
            .threads = {std::min(detail::kMostPrepareThreads, (k / 8 + 31) / 32 * 32)},
            .shared_bytes = k * sizeof(float)},
           a, p, to);
  }
  static void multiply(const MatvecArgs& a, const MatvecPointers& p, bool, const Launch& launch) {
    with_rows(a, [&]<int N>() {
      const TileGemmPointers all{p, launch.scratch<float4>(), launch.zeroed<uint32_t>()};
      launch(&tile_gemm_kernel<F, N>,
             {.blocks = {grid(a)},
              .threads = {detail::TileGemmShape<N>::kThreads},
              .shared_bytes = detail::TileGemmLayout<F, N>::kBytes,
              .cluster = {detail::kPair}},
             a, all, parts(a));
    });
  }

 private:
  static uint32_t panels(const MatvecArgs& a) { return detail::panels_of(a.map.tiles()); }
  // 256 rows are one part where every pair has a panel, and else two: what pairs of a panel leave to each other is half.
  static uint32_t parts(const MatvecArgs& a) {
    return a.rows > kTileGemmRows / 2 && panels(a) < a.blocks / detail::kPair ? 2 : 1;
  }
  // Calls f with how many rows a part has.
  template <class Fn>
  static auto with_rows(const MatvecArgs& a, const Fn& f) {
    if (a.rows <= 16) return f.template operator()<16>();
    if (a.rows <= 32) return f.template operator()<32>();
    if (a.rows <= 64) return f.template operator()<64>();
    if (a.rows <= 128 || parts(a) == 2) return f.template operator()<128>();
    return f.template operator()<kTileGemmRows>();
  }
  static detail::PreparedHalves halves(const MatvecArgs& a) {
    return with_rows(a, [&]<int N>() { return detail::prepared_halves<F>(a.k, N, parts(a)); });
  }
  // The blocks of the parts lie side by side, so that weights come from memory once and from L2 then.
  static uint32_t grid(const MatvecArgs& a) {
    const uint32_t side_by_side = detail::kPair * parts(a);
    return std::min(a.blocks / side_by_side, panels(a) * detail::stages_of<F>(a.k)) * side_by_side;
  }
};

}  // namespace tenon::cuda
