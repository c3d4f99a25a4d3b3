// A ring of memory on its way into shared memory, private to one warp; a stage holds kChunks chunks that come together.
// Lane 0 starts bulk copies, all lanes wait for the oldest stage and read it. Weights stream through such rings; they
// are read once, so L2 gives them up first.
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

template <uint32_t kChunkBytes, uint32_t kChunks>
class WarpRing {
 public:
  static_assert(kChunks <= 2);
  // barriers: 8 bytes a stage; data: kBytes a stage, 16-byte aligned. Called by whole warps.
  static constexpr uint32_t kBytes = kChunkBytes * kChunks;
  __device__ WarpRing(uint32_t barriers, uint32_t data, uint32_t stages)
      : barriers_(barriers), data_(data), stages_(stages) {
    if (threadIdx.x % 32 == 0) {
#pragma unroll 1
      for (uint32_t s = 0; s < stages; ++s) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * s) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
  }

  // Lane 0 only: starts the copy of `count` chunks, `stride` bytes apart, into a stage that nobody reads any more.
  __device__ __forceinline__ void fill(uint32_t stage, const uint8_t* chunk, size_t stride, uint32_t count) const {
    const uint32_t barrier = barriers_ + 8 * stage;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kChunkBytes * count)
                 : "memory");
    copy(data_ + stage * kBytes, chunk, barrier);
    if (kChunks == 2 && count == 2) copy(data_ + stage * kBytes + kChunkBytes, chunk + stride, barrier);
  }

  // Waits for the oldest stage; its address in shared memory.
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
    return data_ + stage_ * kBytes;
  }
  __device__ __forceinline__ uint32_t stage() const {
    return stage_;
  }
  // Goes on to the next stage.
  __device__ __forceinline__ void pop() {
    if (++stage_ == stages_) stage_ = 0, phase_ ^= 1;
  }

 private:
  static __device__ __forceinline__ void copy(uint32_t to, const uint8_t* from, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(kChunkBytes), "r"(barrier), "l"(kEvictFirst)
        : "memory");
  }

  // createpolicy.fractional.L2::evict_first's result for all of the data.
  static constexpr uint64_t kEvictFirst = 0x12f0000000000000;

  uint32_t barriers_, data_, stages_;
  uint32_t stage_ = 0, phase_ = 0;
};

}  // namespace tenon::cuda
