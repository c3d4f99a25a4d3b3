// Hopper's asynchronous machinery as PTX has it: barriers in shared memory, the tensor copy engine, and products by
// warpgroups of four warps (wgmma), which need sm_90a.
//
// Tiles are halves of 64 columns side by side, each with rows of 128 bytes in the 128-byte swizzle, as the copy engine
// writes them and wgmma reads them.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tensor_core.cuh"

namespace tenon::flash {

// ---- barriers ----
__device__ __forceinline__ void init_barrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Of `threads` threads that either sync or, without waiting, only arrive.
__device__ __forceinline__ void named_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- copies ----
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int32_t x0, int32_t x1,
                                         int32_t x2, int32_t x3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
      : "memory");
}
// Orders this thread's stores to shared memory before what the copy engine and wgmma read.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- products ----
constexpr uint32_t kHalfColumns = 64, kHalfRow = 128, kSwizzleRows = 8;  // of a tile; kHalfRow in bytes

// step: bytes between groups of eight rows; half: bytes between halves, where the operand has columns along M or N.
__device__ __forceinline__ uint64_t describe_tile(uint32_t address, uint32_t half) {
  constexpr uint64_t kSwizzle128 = 1;
  constexpr uint64_t kStep = kSwizzleRows * kHalfRow;
  return (address & 0x3ffff) >> 4 | static_cast<uint64_t>(half >> 4) << 16 | (kStep >> 4) << 32 | kSwizzle128 << 62;
}

__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <uint32_t kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of registers that a product works on.
template <uint32_t N>
__device__ __forceinline__ void hold(float (&d)[N]) {
#pragma unroll
  for (uint32_t i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <uint32_t N>
__device__ __forceinline__ void hold(uint32_t (&d)[N]) {
#pragma unroll
  for (uint32_t i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

#define TENON_D8(i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define TENON_D32 TENON_D8(0), TENON_D8(8), TENON_D8(16), TENON_D8(24)
#define TENON_D64 TENON_D32, TENON_D8(32), TENON_D8(40), TENON_D8(48), TENON_D8(56)
#define TENON_R32                                                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define TENON_R64                                                                                                    \
  TENON_R32                                                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
  "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// d (64, 128) = or += a (64, 16) b (128, 16)^T, both tiles in shared memory with columns along the sum.
template <class E>
__device__ __forceinline__ void multiply_tiles(float (&d)[64], uint64_t a, uint64_t b, bool add) {
#define TENON_MULTIPLY(type)                                                                                         \
  asm volatile(                                                                                                      \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"                                                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" TENON_R64 "}, %64, %65, add, 1, 1, 0, 0;\n}" \
      : TENON_D64                                                                                                    \
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)))
  if constexpr (std::is_same_v<E, __half>) {
    TENON_MULTIPLY("f16");
  } else {
    TENON_MULTIPLY("bf16");
  }
#undef TENON_MULTIPLY
}

// d (64, N) += a (64, 16) b (16, N), a in registers, b a tile in shared memory with columns along N.
template <class E>
__device__ __forceinline__ void multiply_rows(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
#define TENON_MULTIPLY(type)                                                      \
  asm volatile(                                                                   \
      "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                              \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" TENON_R64 \
      "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1;\n}"                            \
      : TENON_D64                                                                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (std::is_same_v<E, __half>) {
    TENON_MULTIPLY("f16");
  } else {
    TENON_MULTIPLY("bf16");
  }
#undef TENON_MULTIPLY
}
template <class E>
__device__ __forceinline__ void multiply_rows(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
#define TENON_MULTIPLY(type)                                                     \
  asm volatile(                                                                  \
      "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" TENON_R32 \
      "}, {%32, %33, %34, %35}, %36, add, 1, 1, 1;\n}"                           \
      : TENON_D32                                                                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (std::is_same_v<E, __half>) {
    TENON_MULTIPLY("f16");
  } else {
    TENON_MULTIPLY("bf16");
  }
#undef TENON_MULTIPLY
}
#undef TENON_D8
#undef TENON_D32
#undef TENON_D64
#undef TENON_R32
#undef TENON_R64

template <uint32_t kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <uint32_t kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace tenon::flash
