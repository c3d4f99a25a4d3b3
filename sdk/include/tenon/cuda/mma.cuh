// A warp multiplies with these (mma.sync), and makes halves (fp16 or bf16) for it. They need sm_80 or later.
//
//   c (rows 16, columns 8) += a (rows 16, k 16) b (k 16, columns 8), with f32 sums
//
// Lane l = 4 g + t, g = 0..7, t = 0..3. A register of a and b holds two halves, the first in its lower 16 bits:
//
//   a0: row g,     k 2t, 2t + 1       b0: column g, k 2t, 2t + 1           c0, c1: row g,     columns 2t, 2t + 1
//   a1: row g + 8, k 2t, 2t + 1       b1: column g, k 2t + 8, 2t + 9       c2, c3: row g + 8, columns 2t, 2t + 1
//   a2: row g,     k 2t + 8, 2t + 9
//   a3: row g + 8, k 2t + 8, 2t + 9
//
// So lane 6 (g = 1, t = 2) holds of a: row 1, k 4, 5 (a0); row 9, k 4, 5 (a1);
// row 1, k 12, 13 (a2); row 9, k 12, 13 (a3).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace tenon::cuda {

// Tensor cores multiply fp16 or bf16.
template <class T>
concept HalfType = std::same_as<T, __half> || std::same_as<T, __nv_bfloat16>;

// Returns two floats as two halves in a register, the first in its lower 16 bits.
template <HalfType Half>
__device__ __forceinline__ uint32_t to_halves(float first, float second) {
  uint32_t bits;
  if constexpr (std::is_same_v<Half, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  }
  return bits;
}
// Returns bytes of two words, 0 to 3 of `low` and 4 to 7 of `high`, by the selectors of prmt, one in every 4 bits; with
// 8 added, a byte is its sign throughout, which __byte_perm() does not do.
__device__ __forceinline__ uint32_t permuted_bytes(uint32_t low, uint32_t high, uint32_t selectors) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selectors));
  return bytes;
}
// Returns the half in the lower 16 bits; the upper ones are 0.
template <HalfType Half>
__device__ __forceinline__ float from_half(uint32_t bits) {
  if constexpr (std::is_same_v<Half, __half>) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
  } else {
    return __uint_as_float(bits << 16);
  }
}

namespace detail {

__device__ __forceinline__ uint32_t as_bits(__half2 h) {
  return *reinterpret_cast<const uint32_t*>(&h);
}
__device__ __forceinline__ __half2 as_halves(uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}
// These are two halves of 1024. With an integer u below 1024 in the lower bits, a half is 1024 + u, exactly.
inline constexpr uint32_t kThousand = 0x64006400;

}  // namespace detail

// Computes c += a b, one k-step of 16.
template <HalfType Half>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<Half, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Computes c += a b for 32 k of which each row of a has two of each four, b0 to b3 as mma's two registers for 16
// k after 16 k: b0: k 2t, 2t + 1, b1: k 2t + 8, 2t + 9, b2: k 2t + 16, 2t + 17, b3: k 2t + 24, 2t + 25. a is as
// if it had the 16 k that are there alone, so that a0 and a1 have two of k 4t to 4t + 3, and a2 and a3 two of k
// 16 + 4t to 16 + 4t + 3. Lanes t = 2 kHalf and 2 kHalf + 1 say which, for the first and the last 16 k: bits 4i
// to 4i + 3 of `columns` have the columns of row g in quad i of the four, the smaller one in the lower two bits,
// and the upper half has those of row g + 8.
template <int kHalf>
__device__ __forceinline__ void mma_sparse(float (&c)[4], const uint32_t (&a)[4], const uint4& b, uint32_t columns) {
  asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w), "r"(columns), "n"(kHalf));
}

// Computes c += a b, one k-step of 32 of bytes with int32 sums. b is signed, a is if kSigned says so. A register of a
// and b holds four numbers, the first in its lowest byte; c is as above:
//
//   a0: row g,     k 4t to 4t + 3         b0: column g, k 4t to 4t + 3
//   a1: row g + 8, k 4t to 4t + 3         b1: column g, k 4t + 16 to 4t + 19
//   a2: row g,     k 4t + 16 to 4t + 19
//   a3: row g + 8, k 4t + 16 to 4t + 19
template <bool kSigned>
__device__ __forceinline__ void mma_bytes(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#define TENON_MMA_BYTES(type)                                  \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." type            \
      ".s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
      "{%0, %1, %2, %3};"                                      \
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])         \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (kSigned) {
    TENON_MMA_BYTES("s8");
  } else {
    TENON_MMA_BYTES("u8");
  }
#undef TENON_MMA_BYTES
}

// Does the same for int8; c holds the bits of the sums.
__device__ __forceinline__ void mma_int8(float (&c)[4], const uint4& a, uint2 b) {
  int sum[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = __float_as_int(c[i]);
  mma_bytes<true>(sum, {a.x, a.y, a.z, a.w}, b.x, b.y);
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] = __int_as_float(sum[i]);
}

// Loads four matrices of 8 rows by 16 bytes from shared memory (ldmatrix): lane i has the address of row i % 8 of
// matrix i / 8. Of matrix m, register m gets row g, halves 2t and 2t + 1.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
// Does the same with each matrix transposed: register m gets rows 2t and 2t + 1, half g.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
// Transposes a matrix of 8 rows by 8 halves. A lane gives row g, halves 2t and 2t + 1 (g = lane / 4, t = lane % 4),
// and gets the same of the transposed matrix.
__device__ __forceinline__ uint32_t transposed(uint32_t halves) {
  uint32_t r;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(halves));
  return r;
}

}  // namespace tenon::cuda
