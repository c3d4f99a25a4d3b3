// A warpgroup, the four warps 4 i to 4 i + 3 of a block, multiplies with these (wgmma). They need sm_90a;
// elsewhere nothing but the declarations is compiled. Call begin(), some multiply(), commit(); then
// wait<n>() until at most n such batches are under way. From begin() to the wait, the registers and the
// shared memory that the products use are left alone.
//
//   d (rows 64, N) += a (rows 64, k 16) b (k 16, N), with f32 sums
//
// Warp w of the four has rows 16 w to 16 w + 15. Of these, lane 4 g + t has of a, where it lies in registers, what
// mma.cuh says of its a; and of d, N / 2 registers: for each 8 columns row g, columns 2t and 2t + 1, then row g + 8.
//
// An operand in shared memory is found by a descriptor. There are two forms:
//   describe()          cores of 8 rows of N by 16 bytes along k, each 128 contiguous bytes: [8 k][8 rows of N][row][8 values]
//   describe_swizzled() tiles with rows of 128 bytes in the 128-byte swizzle, as the copy engine writes them
#pragma once

#include <cstdint>
#include <type_traits>

#include "tenon/cuda/barrier.cuh"
#include "tenon/cuda/mma.cuh"

namespace tenon::cuda {

namespace warpgroup {

// Stands before the first product, and wherever other instructions have written to registers that products use.
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
// All warps of a warpgroup change how many registers a lane has: keep_registers() gives the others up, take_registers()
// waits until others have given enough up.
template <uint32_t kRegisters>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <uint32_t kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// Keeps the compiler from moving uses of registers that a product works on across this call.
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

// ---- descriptors: bits 4 to 17 of the address, two distances in units of 16 bytes, the swizzle ------------------------
// b of 16 k in cores. along_k: bytes from the cores of 8 k to those of the next.
__device__ __forceinline__ uint64_t describe(uint32_t address, uint32_t along_k) {
  constexpr uint64_t kCore = 128;
  return (address & 0x3ffff) >> 4 | static_cast<uint64_t>(along_k >> 4) << 16 | (kCore >> 4) << 32;
}

// Describes what lies so many bytes, a multiple of 16, after what `described` describes. Both are in shared memory, so
// the sum stays within the address's bits.
__device__ __forceinline__ uint64_t described_at(uint64_t described, uint32_t bytes) {
  return described + (bytes >> 4);
}

// A swizzled tile has 64 columns of 2 bytes in a row of 128 bytes; eight rows are one period of the swizzle.
inline constexpr uint32_t kSwizzledColumns = 64, kSwizzledRowBytes = 128, kSwizzlePeriod = 8;
// The address is that of 16 columns of a row divisible by 8. next: bytes from a tile to the one with the next 64
// columns, for an operand whose columns lie along M or N; 0 for one whose columns lie along k.
__device__ __forceinline__ uint64_t describe_swizzled(uint32_t address, uint32_t next) {
  constexpr uint64_t kSwizzle128 = 1;
  constexpr uint64_t kPeriodBytes = kSwizzlePeriod * kSwizzledRowBytes;
  return (address & 0x3ffff) >> 4 | static_cast<uint64_t>(next >> 4) << 16 | (kPeriodBytes >> 4) << 32 |
         kSwizzle128 << 62;
}

// The contiguous bytes of b run along k, in rows of N, or along N, in rows of k.
enum class Contiguous { kAlongK = 0, kAlongN = 1 };

// ---- products. The macros spell out lists of registers; the operands after those of d are counted from there on -------
#define TENON_D8(c, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define TENON_D16(c) TENON_D8(c, 0), TENON_D8(c, 8)
#define TENON_D24(c) TENON_D16(c), TENON_D8(c, 16)
#define TENON_D32(c) TENON_D24(c), TENON_D8(c, 24)
#define TENON_D48(c) TENON_D32(c), TENON_D8(c, 32), TENON_D8(c, 40)
#define TENON_D64(c) TENON_D48(c), TENON_D8(c, 48), TENON_D8(c, 56)
#define TENON_D96(c) TENON_D64(c), TENON_D8(c, 64), TENON_D8(c, 72), TENON_D8(c, 80), TENON_D8(c, 88)
#define TENON_D112(c) TENON_D96(c), TENON_D8(c, 96), TENON_D8(c, 104)
#define TENON_D128(c) TENON_D112(c), TENON_D8(c, 112), TENON_D8(c, 120)
#define TENON_R8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TENON_R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TENON_R24 TENON_R16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TENON_R32 TENON_R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TENON_R48 TENON_R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TENON_R64 TENON_R48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TENON_R96                                                                                               \
  TENON_R64                                                                                                     \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TENON_R112 \
  TENON_R96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define TENON_R128 \
  TENON_R112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TENON_PRODUCT(n, type, registers, a0, a1, a2, a3, b_at, layout_at, ...)                                       \
  asm volatile(                                                                                                       \
      "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                                                                  \
      "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" registers "}, {" a0 ", " a1 ", " a2 ", " a3 \
      "}, " b_at ", add, 1, 1, " layout_at ";\n}"                                                                     \
      : __VA_ARGS__                                                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(static_cast<int>(kLayout)))
#define TENON_MULTIPLY(n, count, registers, a0, a1, a2, a3, b_at, layout_at, ...)                 \
  template <HalfType Half, Contiguous kLayout = Contiguous::kAlongK>                              \
  __device__ __forceinline__ void multiply(float(&d)[count], const uint32_t(&a)[4], uint64_t b) { \
    if constexpr (std::is_same_v<Half, __half>) {                                                 \
      TENON_PRODUCT(n, "f16", registers, a0, a1, a2, a3, b_at, layout_at, __VA_ARGS__);           \
    } else {                                                                                      \
      TENON_PRODUCT(n, "bf16", registers, a0, a1, a2, a3, b_at, layout_at, __VA_ARGS__);          \
    }                                                                                             \
  }
// Computes d += a b, where a lies in registers and N is 16, 32, 48, 64, 96, 128, 192 or 256.
TENON_MULTIPLY("16", 8, TENON_R8, "%8", "%9", "%10", "%11", "%12", "%13", TENON_D8("+f", 0))
TENON_MULTIPLY("32", 16, TENON_R16, "%16", "%17", "%18", "%19", "%20", "%21", TENON_D16("+f"))
TENON_MULTIPLY("48", 24, TENON_R24, "%24", "%25", "%26", "%27", "%28", "%29", TENON_D24("+f"))
TENON_MULTIPLY("64", 32, TENON_R32, "%32", "%33", "%34", "%35", "%36", "%37", TENON_D32("+f"))
TENON_MULTIPLY("96", 48, TENON_R48, "%48", "%49", "%50", "%51", "%52", "%53", TENON_D48("+f"))
TENON_MULTIPLY("128", 64, TENON_R64, "%64", "%65", "%66", "%67", "%68", "%69", TENON_D64("+f"))
TENON_MULTIPLY("192", 96, TENON_R96, "%96", "%97", "%98", "%99", "%100", "%101", TENON_D96("+f"))
TENON_MULTIPLY("256", 128, TENON_R128, "%128", "%129", "%130", "%131", "%132", "%133", TENON_D128("+f"))
#undef TENON_MULTIPLY
#undef TENON_PRODUCT

#define TENON_PRODUCT(n, type, registers, a_at, b_at, add_at, ...)                                                \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_at                                                     \
               ", 0;\n"                                                                                           \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" registers "}, " a_at ", " b_at \
               ", add, 1, 1, 0, 0;\n}"                                                                            \
               : __VA_ARGS__                                                                                      \
               : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)))
#define TENON_MULTIPLY(n, count, registers, a_at, b_at, add_at, ...)                                    \
  template <HalfType Half>                                                                              \
  __device__ __forceinline__ void multiply_shared(float(&d)[count], uint64_t a, uint64_t b, bool add) { \
    if constexpr (std::is_same_v<Half, __half>) {                                                       \
      TENON_PRODUCT(n, "f16", registers, a_at, b_at, add_at, __VA_ARGS__);                              \
    } else {                                                                                            \
      TENON_PRODUCT(n, "bf16", registers, a_at, b_at, add_at, __VA_ARGS__);                             \
    }                                                                                                   \
  }
// Computes d += a b, or d = a b where `add` is false. Both lie in shared memory, contiguous along k; N is 128, 224 or
// 256.
TENON_MULTIPLY("128", 64, TENON_R64, "%64", "%65", "%66", TENON_D64("+f"))
TENON_MULTIPLY("224", 112, TENON_R112, "%112", "%113", "%114", TENON_D112("+f"))
TENON_MULTIPLY("256", 128, TENON_R128, "%128", "%129", "%130", TENON_D128("+f"))
#undef TENON_MULTIPLY
// Does the same with int8, 32 k of it, and exact sums in int32; N is 256.
__device__ __forceinline__ void multiply_shared(int32_t (&d)[128], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {" TENON_R128 "}, %128, %129, add;\n}"
      : TENON_D128("+r")
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)));
}
#undef TENON_PRODUCT
#undef TENON_D8
#undef TENON_D16
#undef TENON_D24
#undef TENON_D32
#undef TENON_D48
#undef TENON_D64
#undef TENON_D96
#undef TENON_D112
#undef TENON_D128
#undef TENON_R8
#undef TENON_R16
#undef TENON_R24
#undef TENON_R32
#undef TENON_R48
#undef TENON_R64
#undef TENON_R96
#undef TENON_R112
#undef TENON_R128

}  // namespace warpgroup
}  // namespace tenon::cuda
