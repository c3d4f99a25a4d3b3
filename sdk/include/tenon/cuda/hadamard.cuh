// A warp does the rotation of tenon/sdk/hadamard.h with this, and gets the same bits.
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

}  // namespace tenon::cuda
