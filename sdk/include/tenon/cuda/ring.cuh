// Weights come into shared memory through this ring, which one warp has to itself. A stage holds a segment
// (packed.cuh) of each of the kTiles tiles that the warp multiplies together; they come together. The
// whole warp fills a stage, waits for the oldest and reads it, so no other warp is ever waited for.
// Weights are read once, so L2 gives them up first.
//
// On Hopper one lane starts bulk copies. On older GPUs every lane copies 16 bytes at a time.
//
//   WarpRing<1024, 2> ring(barriers, data, 3);        3 stages of 2 KB, and 8 bytes of barrier each
//   ring.fill(0, ...); ring.fill(1, ...); ring.fill(2, ...);
//   front() waits for stage 0; its 2 KB are read; __syncwarp(); fill(0, ...) again; pop(); front() waits for stage 1; ...
#pragma once

#include <cstdint>

#include "tenon/cuda/barrier.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda {

// These segments fill a stage.
struct StageSource {
  const uint8_t* segment;  // the first tile's segment, in device memory
  size_t tile_bytes;       // the second tile's segment is so many bytes further
  uint32_t tiles;          // 1, or 2 if the ring's stages have room for them
};

template <uint32_t kSegmentBytes, uint32_t kTiles>
class WarpRing {
 public:
  static_assert(kTiles <= 2 && kSegmentBytes % 16 == 0);
  static constexpr uint32_t kStageBytes = kSegmentBytes * kTiles;

  // `barriers` and `data` are addresses in shared memory: Barrier::kBytes a stage,
  // and kStageBytes a stage, 16-byte aligned.
  __device__ WarpRing(uint32_t barriers, uint32_t data, uint32_t stages)
      : barriers_(barriers), data_(data), stages_(stages) {
    if (elect_lane()) {
#pragma unroll 1
      for (uint32_t s = 0; s < stages; ++s) barrier(s).init(kArrivals);
      publish_barriers();
    }
    __syncwarp();
  }

  // Starts the copy into a stage that nobody reads any more.
  __device__ __forceinline__ void fill(uint32_t stage, const StageSource& from) const {
    const Barrier full = barrier(stage);
    const uint32_t to = data_ + stage * kStageBytes;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (elect_lane()) {
      full.arrive_expecting(kSegmentBytes * from.tiles);
      full.copy(to, from.segment, kSegmentBytes, Barrier::kEvictFirst);
      if (kTiles == 2 && from.tiles == 2) {
        full.copy(to + kSegmentBytes, from.segment + from.tile_bytes, kSegmentBytes, Barrier::kEvictFirst);
      }
    }
#else
    for (uint32_t at = 16 * lane_id(); at < kSegmentBytes * from.tiles; at += 16 * 32) {
      const bool first = at < kSegmentBytes;
      copy_async(to + at, first ? from.segment + at : from.segment + from.tile_bytes + at - kSegmentBytes);
    }
    full.arrive_after_copies();
#endif
  }

  // Waits until a stage has come for the first time. A ring that is filled stage by stage, each when the one before has
  // come, keeps the memory busy and leaves the way clear for the loads of others.
  __device__ __forceinline__ void wait_first(uint32_t stage) const { barrier(stage).wait(0); }

  // Waits for the oldest stage; returns its address in shared memory.
  __device__ __forceinline__ uint32_t front() const {
    barrier(stage_).wait(parity_);
    return data_ + stage_ * kStageBytes;
  }
  // Returns the oldest stage's number.
  __device__ __forceinline__ uint32_t stage() const { return stage_; }
  // Goes on to the next stage.
  __device__ __forceinline__ void pop() {
    if (++stage_ == stages_) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr uint32_t kArrivals = 1;  // the elected lane's
#else
  static constexpr uint32_t kArrivals = 32;  // every lane's copies
#endif
  __device__ __forceinline__ Barrier barrier(uint32_t stage) const {
    return Barrier(barriers_ + Barrier::kBytes * stage);
  }

  uint32_t barriers_, data_, stages_;
  uint32_t stage_ = 0, parity_ = 0;
};

}  // namespace tenon::cuda
