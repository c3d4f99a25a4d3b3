// This gives the cluster that a block is in (op.h: Grid::cluster), whose blocks reach each other's shared memory.
// It is CUDA's own functions and not its cooperative groups, whose headers take longer to compile than a kernel.
#pragma once

#include <cstdint>

namespace tenon::cuda {

// kHasClusters says whether the GPU that is compiled for has clusters.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasClusters = false;

// This stands for a cluster on a GPU that has none: each block is a cluster of its own.
struct Cluster {
  __device__ void sync() const { __syncthreads(); }
  __device__ void arrive() const {}
  __device__ void wait() const { __syncthreads(); }
  __device__ uint32_t num_blocks() const { return 1; }
  __device__ uint32_t block_rank() const { return 0; }
  template <class T>
  __device__ T* map_shared_rank(T* p, uint32_t) const {
    return p;
  }
};
#else
inline constexpr bool kHasClusters = true;

struct Cluster {
  // All threads of all its blocks wait for each other.
  __device__ void sync() const {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
  }
  // These do the same in two halves, between which a block can work. All threads of a warp call each together. They
  // promise nothing about memory but that what one block no longer reads another may write.
  __device__ void arrive() const { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
  __device__ void wait() const { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
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
