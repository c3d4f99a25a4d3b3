// A ring of memory on its way into shared memory, private to one warp; a stage holds kSegments segments that come together.
// Whole warps fill a stage, wait for the oldest and read it. Weights stream through such rings; they are read once, so
// L2 gives them up first. Bulk copies on Hopper, copies of 16 bytes by every lane before it.
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

__device__ __forceinline__ void store_shared(uint32_t address, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}

// True in one lane of a converged warp, and known to the compiler to be so.
__device__ __forceinline__ bool elect_lane() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
#else
  return threadIdx.x % 32 == 0;
#endif
}

template <uint32_t kSegmentBytes, uint32_t kSegments>
class WarpRing {
 public:
  static_assert(kSegments <= 2 && kSegmentBytes % 16 == 0);
  // barriers: 8 bytes a stage; data: kBytes a stage, 16-byte aligned.
  static constexpr uint32_t kBytes = kSegmentBytes * kSegments;
  __device__ WarpRing(uint32_t barriers, uint32_t data, uint32_t stages)
      : barriers_(barriers), data_(data), stages_(stages) {
    if (elect_lane()) {
#pragma unroll 1
      for (uint32_t s = 0; s < stages; ++s) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barriers + 8 * s), "r"(kArrivals) : "memory");
      }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncwarp();
  }

  // Starts the copy of `count` segments, `stride` bytes apart, into a stage that nobody reads any more.
  __device__ __forceinline__ void fill(uint32_t stage, const uint8_t* segment, size_t stride, uint32_t count) const {
    const uint32_t barrier = barriers_ + 8 * stage, to = data_ + stage * kBytes;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (elect_lane()) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kSegmentBytes * count)
                   : "memory");
      copy(to, segment, barrier);
      if (kSegments == 2 && count == 2) copy(to + kSegmentBytes, segment + stride, barrier);
    }
#else
    for (uint32_t at = 16 * (threadIdx.x % 32); at < kSegmentBytes * count; at += 16 * 32) {
      const uint8_t* from = at < kSegmentBytes ? segment + at : segment + stride + at - kSegmentBytes;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at), "l"(from) : "memory");
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
#endif
  }

  // Waits for a stage to come for the first time. Filling a ring stage after stage keeps the way clear for others.
  __device__ __forceinline__ void wait_first(uint32_t stage) const { wait(stage, 0); }

  // Waits for the oldest stage; its address in shared memory.
  __device__ __forceinline__ uint32_t front() const {
    wait(stage_, phase_);
    return data_ + stage_ * kBytes;
  }
  __device__ __forceinline__ uint32_t stage() const { return stage_; }
  // Goes on to the next stage.
  __device__ __forceinline__ void pop() {
    if (++stage_ == stages_) stage_ = 0, phase_ ^= 1;
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr uint32_t kArrivals = 1;
#define TENON_MBARRIER_WAIT "mbarrier.try_wait.parity.shared::cta.b64"
#else
  static constexpr uint32_t kArrivals = 32;
#define TENON_MBARRIER_WAIT "mbarrier.test_wait.parity.shared::cta.b64"
#endif
  __device__ __forceinline__ void wait(uint32_t stage, uint32_t phase) const {
    uint32_t done = 0;
    while (done == 0) {
      asm volatile("{\n.reg .pred p;\n" TENON_MBARRIER_WAIT " p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(barriers_ + 8 * stage), "r"(phase)
                   : "memory");
    }
  }
#undef TENON_MBARRIER_WAIT

  static __device__ __forceinline__ void copy(uint32_t to, const uint8_t* from, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(kSegmentBytes), "r"(barrier), "l"(kEvictFirst)
        : "memory");
  }

  // createpolicy.fractional.L2::evict_first's result for all of the data.
  static constexpr uint64_t kEvictFirst = 0x12f0000000000000;

  uint32_t barriers_, data_, stages_;
  uint32_t stage_ = 0, phase_ = 0;
};

}  // namespace tenon::cuda
