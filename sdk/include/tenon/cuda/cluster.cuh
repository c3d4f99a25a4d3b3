// This gives the cluster that a block is in (op.h: Grid::cluster), whose blocks read each other's shared memory.
// It is CUDA's own functions and not its cooperative groups, whose headers take longer to compile than a kernel.
#pragma once

#include <cstdint>

namespace tenon::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
// This stands for a cluster on a GPU that has none: each block is a cluster of its own.
struct Cluster {
  __device__ void sync() const { __syncthreads(); }
  __device__ uint32_t num_blocks() const { return 1; }
  __device__ uint32_t block_rank() const { return 0; }
  template <class T>
  __device__ T* map_shared_rank(T* p, uint32_t) const {
    return p;
  }
};
#else
struct Cluster {
  // All threads of all its blocks wait for each other.
  __device__ void sync() const {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
  }
  __device__ uint32_t num_blocks() const { return __clusterSizeInBlocks(); }
  // Returns the calling block's number in it.
  __device__ uint32_t block_rank() const { return __clusterRelativeBlockRank(); }
  // Returns where block `rank` has what the calling block has at p in its shared memory.
  template <class T>
  __device__ T* map_shared_rank(T* p, uint32_t rank) const {
    return static_cast<T*>(__cluster_map_shared_rank(p, rank));
  }
};
#endif

__device__ inline Cluster this_cluster() {
  return {};
}

}  // namespace tenon::cuda
