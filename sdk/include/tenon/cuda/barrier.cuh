// Threads meet at these: barriers in shared memory (mbarrier) with the bulk copies that signal them, named
// barriers of a block, and counters and flags in device memory. init(), arrive(), arrive_after_copies() and
// wait() need sm_80, all else of Barrier sm_90.
//
// A barrier has phases, numbered from 0. A phase ends when as many arrivals as init() said have come, and all bytes
// that arrivals announced. wait(parity) returns once the phase of that parity has ended: a ring of 4 stages waits with
// parity 0 for the first use of each stage, with 1 for the second, with 0 for the third.
#pragma once

#include <cstdint>

namespace tenon::cuda {

// A box begins at these coordinates in a tensor of four dimensions, innermost first.
struct BoxOrigin {
  int32_t x0, x1, x2, x3;
};

// Returns the address of what the cluster's block `rank` has in the same place of its shared memory.
__device__ __forceinline__ uint32_t address_in_cluster(uint32_t address, uint32_t rank) {
  uint32_t there = 0;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// This is a barrier in shared memory: 8 bytes at a multiple of 8. The object holds its address.
class Barrier {
 public:
  static constexpr uint32_t kBytes = 8;

  __device__ explicit Barrier(uint32_t address) : address_(address) {}
  // One thread calls it, before publish_barriers() and a block-wide or warp-wide barrier.
  __device__ __forceinline__ void init(uint32_t arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_), "r"(arrivals) : "memory");
  }
  // Ends it, so that it can be made again. Nobody waits or arrives any more.
  __device__ __forceinline__ void invalidate() const {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address_) : "memory");
  }
  __device__ __forceinline__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_) : "memory");
  }
  // Arrives when this thread's asynchronous copies (shared_memory.cuh) have come. It is one of init()'s arrivals.
  __device__ __forceinline__ void arrive_after_copies() const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_) : "memory");
  }
  // Returns the address, for arrive_in_cluster(), of the barrier in the same place of the cluster's block `rank`.
  // Barriers that follow each other do so there, too.
  __device__ __forceinline__ uint32_t in_cluster(uint32_t rank) const { return address_in_cluster(address_, rank); }
  static __device__ __forceinline__ void arrive_in_cluster(uint32_t there) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  }
  // Arrives and announces so many bytes, which bulk copies and store_in_cluster() bring in this phase.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_), "r"(bytes) : "memory");
  }
  // Stores to an address of a block of the cluster and counts the bytes at that block's barrier, which announces them.
  // Both addresses are those of the cluster, as in_cluster() and address_in_cluster() return them.
  static __device__ __forceinline__ void store_in_cluster(uint32_t barrier, uint32_t to, float2 v) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(v.x), "f"(v.y), "r"(barrier)
                 : "memory");
  }
  __device__ __forceinline__ void wait(uint32_t parity) const {
// Hopper's try_wait lets the thread sleep for a while; before it there is only a test.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define TENON_MBARRIER_WAIT "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define TENON_MBARRIER_WAIT "mbarrier.test_wait.parity.shared::cta.b64"
#endif
    uint32_t done = 0;
    while (done == 0) {
      asm volatile("{\n.reg .pred p;\n" TENON_MBARRIER_WAIT " p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(address_), "r"(parity)
                   : "memory");
    }
#undef TENON_MBARRIER_WAIT
  }

  // ---- bulk copies from device memory, begun by one thread; they bring announced bytes of the current phase ----------
  // L2 gives such data up first: the result of createpolicy.fractional.L2::evict_first for all of the data.
  static constexpr uint64_t kEvictFirst = 0x12f0000000000000;
  // Both addresses and the number of bytes are multiples of 16.
  __device__ __forceinline__ void copy(uint32_t to, const void* from, uint32_t bytes, uint64_t policy) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(address_), "l"(policy)
        : "memory");
  }
  // Copies to the same place in each block of the cluster whose rank has its bit in `ranks`; each of
  // them counts the bytes at its own barrier.
  __device__ __forceinline__ void copy_to_cluster(uint32_t to, const void* from, uint32_t bytes, uint16_t ranks) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
        "%4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(address_), "h"(ranks)
        : "memory");
  }
  // Copies a box of a tensor. `map` is its CUtensorMap, in a kernel's parameters. Elements outside of the tensor become
  // zeros and count as bytes.
  __device__ __forceinline__ void copy_box(uint32_t to, const void* map, const BoxOrigin& at) const {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(to),
        "l"(map), "r"(address_), "r"(at.x0), "r"(at.x1), "r"(at.x2), "r"(at.x3)
        : "memory");
  }
  // Copies a box to the same place in each block of the cluster whose rank has its bit in `ranks`, as copy_to_cluster().
  __device__ __forceinline__ void copy_box_to_cluster(uint32_t to, const void* map, const BoxOrigin& at,
                                                      uint16_t ranks) const {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
        "{%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
        "l"(map), "r"(address_), "r"(at.x0), "r"(at.x1), "r"(at.x2), "r"(at.x3), "h"(ranks)
        : "memory");
  }

 private:
  uint32_t address_;
};

// ---- boxes stored to a tensor. One thread stores them, makes a batch of them, and waits ------------------------------
// Other threads that wrote there call fence_async() (shared_memory.cuh), and a barrier follows. The copy engine leaves
// elements outside of the tensor out.
__device__ __forceinline__ void store_box(const void* map, uint32_t from, const BoxOrigin& at) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(at.x0), "r"(at.x1), "r"(at.x2), "r"(at.x3)
               : "memory");
}
__device__ __forceinline__ void commit_boxes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but kPending of this thread's batches have been read from shared memory.
template <uint32_t kPending>
__device__ __forceinline__ void wait_boxes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// Waits until they have been stored.
template <uint32_t kPending>
__device__ __forceinline__ void wait_boxes() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Makes what init() wrote visible to the copy engine and to the cluster. Before Hopper there is nothing to do.
__device__ __forceinline__ void publish_barriers() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// ---- named barriers, 1 to 15 (0 is __syncthreads()), where `threads` threads of a block meet ---------------------------
// Waits for the others.
__device__ __forceinline__ void named_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Is counted and does not wait.
__device__ __forceinline__ void named_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- counters and flags in device memory, where blocks meet -------------------------------------------------------------
// Adds 1 and returns what it was before. What was written before earlier arrivals is visible after this one.
__device__ __forceinline__ uint32_t arrive_at_counter(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}
// Raises a flag that is down, which is 0. Who finds it raised sees what this thread wrote before.
__device__ __forceinline__ void raise_flag(uint32_t* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
}
__device__ __forceinline__ void wait_for_flag(const uint32_t* flag) {
  uint32_t raised = 0;
  while (raised == 0) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
}

}  // namespace tenon::cuda
