// Lanes of a warp do the rotation of tenon/sdk/hadamard.h with this, and get the same bits.
#pragma once

#include <cstdint>

#include "tenon/sdk/hadamard.h"

namespace tenon::cuda {

// Rotates a head in shared memory: (dim). What the warp's lanes wrote before is seen, and so is what they leave.
__device__ __forceinline__ void rotate_head(float* x, uint32_t dim) {
  const uint32_t lane = threadIdx.x % 32, block = sdk::hadamard_block(dim);
  for (uint32_t step = 1; step < block; step *= 2) {
    __syncwarp();
    for (uint32_t i = lane; i < dim / 2; i += 32) {
      float &first = x[sdk::hadamard_first(i, step)], &second = x[sdk::hadamard_first(i, step) + step];
      const float sum = first + second, difference = first - second;
      first = sum;
      second = difference;
    }
  }
  __syncwarp();
  for (uint32_t d = lane; d < dim; d += 32) x[d] *= sdk::hadamard_scale(block);
  __syncwarp();
}

// Rotates a head of kDim elements, a power of two, of which each of kDim / kOwn lanes that follow each other in a warp
// has kOwn, those from kOwn times its own number among them on. All of these lanes must call it together.
template <uint32_t kDim, uint32_t kOwn>
__device__ __forceinline__ void rotate_head(float (&own)[kOwn]) {
  constexpr uint32_t kLanes = kDim / kOwn;
  static_assert(sdk::hadamard_block(kDim) == kDim && kLanes * kOwn == kDim && kLanes <= 32);
  const uint32_t lane = threadIdx.x % 32, first = lane / kLanes * kLanes;
  const uint32_t mates = (kLanes == 32 ? ~0u : (1u << kLanes) - 1) << first;
#pragma unroll
  for (uint32_t step = 1; step < kOwn; step *= 2) {
#pragma unroll
    for (uint32_t i = 0; i < kOwn / 2; ++i) {
      float &one = own[sdk::hadamard_first(i, step)], &other = own[sdk::hadamard_first(i, step) + step];
      const float sum = one + other, difference = one - other;
      one = sum;
      other = difference;
    }
  }
#pragma unroll
  for (uint32_t step = 1; step < kLanes; step *= 2) {
#pragma unroll
    for (float& x : own) {
      const float other = __shfl_xor_sync(mates, x, step);
      x = (lane & step) != 0 ? other - x : x + other;
    }
  }
#pragma unroll
  for (float& x : own) x *= sdk::hadamard_scale(kDim);
}

}  // namespace tenon::cuda
