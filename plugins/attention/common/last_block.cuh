// Several blocks leave what they made in memory, and the one that comes last goes on with all of it.
#pragma once

#include <cstdint>

#include "tenon/cuda/barrier.cuh"

namespace tenon::attention {

// Returns true in the block that comes last of `most`; it sees what all stored before they came here, and the counter is
// zero again.
__device__ inline bool is_last(uint32_t* counter, uint32_t most) {
  __shared__ uint32_t before;
  __syncthreads();
  if (threadIdx.x == 0) {
    before = cuda::arrive_at_counter(counter);
    if (before + 1 == most) *counter = 0;
  }
  __syncthreads();
  return before + 1 == most;
}

}  // namespace tenon::attention
