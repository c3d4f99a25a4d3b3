// Here is what the lanes of a warp do together.
#pragma once

#include <cstdint>

namespace tenon::cuda {

// Returns the calling thread's lane, 0 to 31.
__device__ __forceinline__ uint32_t lane_id() {
  return threadIdx.x % 32;
}
// Returns the number of the calling thread's warp in its block, which the compiler then knows to be the same in all
// lanes. All lanes call it.
__device__ __forceinline__ uint32_t warp_id() {
  return __shfl_sync(~0U, threadIdx.x / 32, 0);
}

// These give all 32 lanes what they have together. Sums are made of neighbours 16 lanes apart first, then 8, 4, 2, 1.
template <class T, class Op>
__device__ __forceinline__ T over_warp(T v, const Op& op) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) v = op(v, __shfl_xor_sync(~0U, v, apart));
  return v;
}
__device__ __forceinline__ float warp_sum(float v) {
  return over_warp(v, [](float a, float b) { return a + b; });
}
__device__ __forceinline__ float warp_max(float v) {
  return over_warp(v, [](float a, float b) { return fmaxf(a, b); });
}
__device__ __forceinline__ float warp_min(float v) {
  return over_warp(v, [](float a, float b) { return fminf(a, b); });
}

// The sums of an mma (mma.cuh) are over its rows with these: four lanes share a row.
__device__ __forceinline__ float row_sum(float v) {
  v += __shfl_xor_sync(~0U, v, 1);
  return v + __shfl_xor_sync(~0U, v, 2);
}
__device__ __forceinline__ float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0U, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0U, v, 2));
}
// And over its columns with these: eight lanes share a column.
__device__ __forceinline__ float column_sum(float v) {
#pragma unroll
  for (uint32_t apart = 4; apart < 32; apart *= 2) v += __shfl_xor_sync(~0U, v, apart);
  return v;
}
__device__ __forceinline__ float column_max(float v) {
#pragma unroll
  for (uint32_t apart = 4; apart < 32; apart *= 2) v = fmaxf(v, __shfl_xor_sync(~0U, v, apart));
  return v;
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
