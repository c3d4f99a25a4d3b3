// Products by a warpgroup of four warps (wgmma) and the barriers that go with them, as PTX has them. They need sm_90a;
// elsewhere nothing but the declarations is compiled.
//
// The A operand lies in registers in the order of mma.m16n8k16's fragments, a warp has 16 of the 64 rows. The B operand
// lies in shared memory, cores of 8 rows of N by 16 bytes along K, each contiguous: [8 k][8 rows of N][row][8 values].
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tenon::cuda {

// A barrier in shared memory, 8 bytes.
class Barrier {
 public:
  __device__ explicit Barrier(uint32_t address) : address_(address) {}
  __device__ __forceinline__ void init(uint32_t arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_) : "memory");
  }
  // Where the barrier in the same place of the cluster's block `rank` is, for arrive_in_cluster(). Barriers that follow
  // each other do so there, too.
  __device__ __forceinline__ uint32_t in_cluster(uint32_t rank) const {
    uint32_t there = 0;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address_), "r"(rank));
    return there;
  }
  static __device__ __forceinline__ void arrive_in_cluster(uint32_t there) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  }
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_), "r"(bytes) : "memory");
  }
  __device__ __forceinline__ void wait(uint32_t parity) const {
    uint32_t done = 0;
    while (done == 0) {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(address_), "r"(parity)
                   : "memory");
    }
  }
  // L2 gives such data up first; createpolicy.fractional's result.
  static constexpr uint64_t kEvictFirst = 0x12f0000000000000;
  // Both addresses and the number of bytes are multiples of 16.
  __device__ __forceinline__ void copy(uint32_t to, const void* from, uint32_t bytes, uint64_t policy) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(address_), "l"(policy)
        : "memory");
  }
  // To the same place in the blocks of the cluster that `ranks` has bits for, each of which counts it at its own barrier.
  __device__ __forceinline__ void copy_to_cluster(uint32_t to, const void* from, uint32_t bytes, uint16_t ranks) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
        "%4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(address_), "h"(ranks)
        : "memory");
  }

 private:
  uint32_t address_;
};
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Of so many threads of a block.
__device__ __forceinline__ void named_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

namespace warpgroup {

__device__ __forceinline__ void begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <uint32_t kPending>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// All warps of a warpgroup change how many registers a lane has: to fewer, and to more, once others have given theirs up.
template <uint32_t kRegisters>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <uint32_t kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// Keeps the compiler from moving uses of registers that a product works on.
template <class T, uint32_t N>
__device__ __forceinline__ void hold(T (&d)[N]) {
#pragma unroll
  for (uint32_t i = 0; i < N; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      asm volatile("" : "+f"(d[i])::"memory");
    } else {
      asm volatile("" : "+r"(d[i])::"memory");
    }
  }
}

// B of 16 k. along_k: bytes from the cores of 8 k to those of the next.
__device__ __forceinline__ uint64_t describe(uint32_t address, uint32_t along_k) {
  constexpr uint64_t kCore = 128;
  return (address & 0x3ffff) >> 4 | static_cast<uint64_t>(along_k >> 4) << 16 | (kCore >> 4) << 32;
}

// What describe() says of an address that lies so many bytes, a multiple of 16, after the described one.
__device__ __forceinline__ uint64_t described_at(uint64_t described, uint32_t bytes) {
  const uint32_t low = static_cast<uint32_t>(described) + (bytes >> 4);
  return described & 0xffffffff00000000 | low;
}

#define TENON_D8(i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define TENON_D16 TENON_D8(0), TENON_D8(8)
#define TENON_D32 TENON_D16, TENON_D8(16), TENON_D8(24)
#define TENON_D64 TENON_D32, TENON_D8(32), TENON_D8(40), TENON_D8(48), TENON_D8(56)
#define TENON_D128                                                                                               \
  TENON_D64, TENON_D8(64), TENON_D8(72), TENON_D8(80), TENON_D8(88), TENON_D8(96), TENON_D8(104), TENON_D8(112), \
      TENON_D8(120)
#define TENON_R8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TENON_R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TENON_R32 TENON_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TENON_R64                                                                                                    \
  TENON_R32                                                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
  "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TENON_R128                                                                                                   \
  TENON_R64                                                                                                          \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
  "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, " \
  "%107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "     \
  "%125, %126, %127"
// The operands behind d's are counted from its number of registers on.
#define TENON_PRODUCT(n, type, registers, a0, a1, a2, a3, b_at, ...)                                                  \
  asm volatile(                                                                                                       \
      "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                                                                  \
      "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" registers "}, {" a0 ", " a1 ", " a2 ", " a3 \
      "}, " b_at ", add, 1, 1, 0;\n}"                                                                                 \
      : __VA_ARGS__                                                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define TENON_MULTIPLY(n, count, registers, a0, a1, a2, a3, b_at, ...)                            \
  template <class Half>                                                                           \
  __device__ __forceinline__ void multiply(float(&d)[count], const uint32_t(&a)[4], uint64_t b) { \
    if constexpr (std::is_same_v<Half, __half>) {                                                 \
      TENON_PRODUCT(n, "f16", registers, a0, a1, a2, a3, b_at, __VA_ARGS__);                      \
    } else {                                                                                      \
      TENON_PRODUCT(n, "bf16", registers, a0, a1, a2, a3, b_at, __VA_ARGS__);                     \
    }                                                                                             \
  }
// d (64, N) += a (64, 16) b (N, 16)^T; of d a lane has rows g and g + 8 of its warp's, g = lane / 4: of each 8 columns
// n first 2 (lane % 4) and + 1 of row g, then of g + 8.
TENON_MULTIPLY("16", 8, TENON_R8, "%8", "%9", "%10", "%11", "%12", TENON_D8(0))
TENON_MULTIPLY("32", 16, TENON_R16, "%16", "%17", "%18", "%19", "%20", TENON_D16)
TENON_MULTIPLY("64", 32, TENON_R32, "%32", "%33", "%34", "%35", "%36", TENON_D32)
TENON_MULTIPLY("128", 64, TENON_R64, "%64", "%65", "%66", "%67", "%68", TENON_D64)
TENON_MULTIPLY("256", 128, TENON_R128, "%128", "%129", "%130", "%131", "%132", TENON_D128)
#undef TENON_MULTIPLY
#undef TENON_PRODUCT
#undef TENON_D8
#undef TENON_D16
#undef TENON_D32
#undef TENON_D64
#undef TENON_D128
#undef TENON_R8
#undef TENON_R16
#undef TENON_R32
#undef TENON_R64
#undef TENON_R128

}  // namespace warpgroup
}  // namespace tenon::cuda
