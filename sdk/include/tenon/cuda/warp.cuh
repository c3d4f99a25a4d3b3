// Here is what the lanes of a warp do together.
#pragma once

#include <cstdint>

namespace tenon::cuda {

// Returns the calling thread's lane, 0 to 31.
__device__ __forceinline__ uint32_t lane_id() {
  return threadIdx.x % 32;
}

// Returns true in one lane of a converged warp, and the compiler knows that it is one lane: what follows runs without a
// loop over the lanes. Before Hopper it is lane 0.
__device__ __forceinline__ bool elect_lane() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
#else
  return threadIdx.x % 32 == 0;
#endif
}

}  // namespace tenon::cuda
