// A warpgroup's sums of a panel are made here, turn by turn, from the rings of a block (tile_gemm_block.cuh).
#pragma once

#include "tenon/cuda/tile_gemm_block.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda::detail {

// A warpgroup has these sums of a panel: 64 packed rows by N rows of x. A warp has 16 packed rows, a lane rows g and
// g + 8 of them, g = lane / 4.
template <class Block>
class PanelTurns {
  using F = typename Block::Format;
  static constexpr int N = Block::kRows;

 protected:
  using Shape = TileGemmShape<N>;
  static constexpr uint32_t kSums = N / 2;  // a lane has so many
  __device__ __forceinline__ explicit PanelTurns(const Block& b)
      : b_(b),
        warp_(warp_id()),
        x_empty_(b.of_x.empty(0).in_cluster(b.x_writer())),
        x_described_(warpgroup::describe(b.base + Block::Layout::kX + b.x_of_warp(warp_), kCoresOf8)) {}

  // Multiplies what the block has of the panel that stage s is in; returns the stage after.
  __device__ __forceinline__ uint32_t multiply(uint32_t s) {
    const uint32_t end = b_.end_of_panel(s);
    clear();
    // The turns of one or two stages of the ring are as many as there are sets of fragments, or a multiple.
    constexpr bool kTwo = Block::kTurns % 2 != 0;
    constexpr uint32_t kAtOnce = (kTwo ? 2 : 1) * Block::kStagesAtOnce;
    for (; s + kAtOnce <= end; s += kAtOnce) {
      multiply_stage<0>();
      if constexpr (kTwo) multiply_stage<1>();
    }
    if (s < end) multiply_stage<0>();
    warpgroup::wait<0>();
    warpgroup::hold(sum_);
    release_x();
    releases_ = false;
    return end;
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& v : sum_) v = 0;
  }

  const Block& b_;
  uint32_t warp_;
  float sum_[kSums] = {};

 private:
  static constexpr uint32_t kCoresOf8 = 16 * N;  // bytes
  // Where both rings have as many stages, and a stage of x goes with each of weights, one walks round them.
  static constexpr bool kOneCursor = Block::kTurns == 1 && Block::Layout::kWeightStages == Block::Layout::kXStages;
  static constexpr uint32_t kTurnBundles = Shape::kTurnK / 64;

  __device__ __forceinline__ void release_x() const {
    if (releases_) Barrier::arrive_in_cluster(x_empty_ + 8 * under_way_);
  }

  // Returns what the function of warpgroup.cuh does. A sum of 64 bits is one instruction, but with 65 to 128 rows ptxas
  // spills registers for it.
  static __device__ __forceinline__ uint64_t described_at(uint64_t described, uint32_t bytes) {
    if constexpr (N <= 64 || Shape::kMovesRegisters) return warpgroup::described_at(described, bytes);
    const uint32_t low = static_cast<uint32_t>(described) + (bytes >> 4);
    return described & 0xffffffff00000000 | low;
  }
  // It stands after the products, which have taken the fragments. Before them, loads of the stage may be under way; an
  // arrival would overtake these, and the copy engine would write over what they are to read.
  __device__ __forceinline__ void release_weights() {
    __syncwarp();
    if (elect_lane()) b_.of_weights.empty(weights_.stage()).arrive();
    weights_.advance();
  }
  // kFirst says which fragments the first turn gets.
  template <uint32_t kFirst>
  __device__ __forceinline__ void multiply_stage() {
#pragma unroll
    for (uint32_t turn = 0; turn < Block::kTurns; ++turn) multiply_turn(turn, fragments_[(kFirst + turn) % 2]);
  }
  // When this returns, the product of this turn is under way, and the one before it is done.
  __device__ __forceinline__ void multiply_turn(uint32_t turn, uint32_t (&fragments)[kTurnBundles][4][4]) {
    if (turn == 0) b_.of_weights.full(weights_.stage()).wait(weights_.parity());
    const uint32_t weights = b_.base + weights_.stage() * Block::kWeightBytes + warp_ * kTileStageBytes<F>;
#pragma unroll
    for (uint32_t q = 0; q < kTurnBundles; ++q) HalfFragments<F>::load(weights, turn * kTurnBundles + q, fragments[q]);
    const uint32_t stage = kOneCursor ? weights_.stage() : x_.stage();
    const uint32_t parity = kOneCursor ? weights_.parity() : x_.parity();
    const uint64_t x = described_at(x_described_, stage * Block::kXBytes);
    b_.of_x.full(stage).wait(parity);
#pragma unroll
    for (uint32_t step = 0; step < 4 * kTurnBundles; ++step) warpgroup::hold(fragments[step / 4][step % 4]);
    warpgroup::begin();
#pragma unroll
    for (uint32_t step = 0; step < 4 * kTurnBundles; ++step) {
      warpgroup::multiply<typename F::Half>(sum_, fragments[step / 4][step % 4], described_at(x, 2 * step * kCoresOf8));
    }
    warpgroup::commit();
    if (turn + 1 == Block::kTurns) release_weights();
    warpgroup::wait<1>();
    release_x();
    under_way_ = stage;
    releases_ = lane_id() < Block::kXReaders;
    if constexpr (!kOneCursor) x_.advance();
  }

  RingCursor<Block::Layout::kWeightStages> weights_;
  RingCursor<Block::Layout::kXStages> x_;
  uint32_t x_empty_;                           // the lane arrives at the barriers of a block of the cluster
  uint64_t x_described_;                       // the ring's first stage
  uint32_t fragments_[2][kTurnBundles][4][4];  // they are for the product that is under way, and for the next one
  uint32_t under_way_ = 0;                     // the stage of x that is read, and
  bool releases_ = false;                      // true: there is one, and the lane says when it was read
};

}  // namespace tenon::cuda::detail
