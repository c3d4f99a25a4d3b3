// A ring of chunks of memory on its way into shared memory, private to one warp: lane 0 starts bulk copies, all lanes
// wait for the oldest and read it. Weights stream through such rings; they are read once, so L2 gives them up first.
#pragma once

#include <cstdint>

namespace tenon::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}

class WarpRing {
 public:
  // barriers: 8 bytes a stage; data: chunk bytes a stage, 16-byte aligned. Called by whole warps.
  __device__ WarpRing(uint32_t barriers, uint32_t data, uint32_t chunk_bytes, uint32_t stages)
      : barriers_(barriers), data_(data), chunk_bytes_(chunk_bytes), stages_(stages) {
    if (threadIdx.x % 32 == 0) {
      for (uint32_t s = 0; s < stages; ++s) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * s) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
  }

  // Lane 0 only: starts the copy of a chunk into a stage that nobody reads any more.
  __device__ __forceinline__ void fill(uint32_t stage, const uint8_t* chunk) const {
    const uint32_t barrier = barriers_ + 8 * stage;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(chunk_bytes_) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(data_ + stage * chunk_bytes_),
        "l"(chunk), "r"(chunk_bytes_), "r"(barrier), "l"(kEvictFirst)
        : "memory");
  }

  // Waits for the oldest chunk; its address in shared memory.
  __device__ __forceinline__ uint32_t front() const {
    const uint32_t barrier = barriers_ + 8 * stage_;
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(barrier), "r"(phase_)
          : "memory");
    }
    return data_ + stage_ * chunk_bytes_;
  }
  __device__ __forceinline__ uint32_t stage() const { return stage_; }
  // Goes on to the next chunk.
  __device__ __forceinline__ void pop() {
    if (++stage_ == stages_) stage_ = 0, phase_ ^= 1;
  }

 private:
  // createpolicy.fractional.L2::evict_first's result for all of the data.
  static constexpr uint64_t kEvictFirst = 0x12f0000000000000;

  uint32_t barriers_, data_, chunk_bytes_, stages_;
  uint32_t stage_ = 0, phase_ = 0;
};

}  // namespace tenon::cuda
