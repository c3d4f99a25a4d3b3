// This gives the cluster that a block is in (op.h: Grid::cluster), whose blocks read each other's shared memory.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

namespace tenon::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
// This stands for a cluster on a GPU that has none: each block is a cluster of its own.
struct OneBlock {
  __device__ void sync() const { __syncthreads(); }
  __device__ uint32_t num_blocks() const { return 1; }
  __device__ uint32_t block_rank() const { return 0; }
  template <class T>
  __device__ T* map_shared_rank(T* p, uint32_t) const {
    return p;
  }
};
__device__ inline OneBlock this_cluster() {
  return {};
}
#else
__device__ inline cooperative_groups::cluster_group this_cluster() {
  return cooperative_groups::this_cluster();
}
#endif

}  // namespace tenon::cuda
