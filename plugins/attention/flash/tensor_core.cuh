// Warp-wide matrix products of sm_80 and later, and asynchronous copies to shared memory.
//
// A tile in shared memory has rows of D elements of two bytes. Eight rows of a matrix lie in different banks: 16-byte
// pieces are swizzled by the row's number, or rows are an odd number of pieces apart.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace tenon::flash {

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

template <uint32_t D>
inline constexpr uint32_t kTileRow = D % 64 == 0 ? D * 2 : D * 2 + 16;  // bytes
// Where the 16 bytes `piece` of `row` lie in a tile, in bytes.
template <uint32_t D>
__device__ __forceinline__ uint32_t tile_offset(uint32_t row, uint32_t piece) {
  static_assert(D % 64 == 0 || D / 8 % 2 == 0);
  return row * kTileRow<D> + ((D % 64 == 0 ? piece ^ (row & 7) : piece) << 4);
}

__device__ __forceinline__ void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's groups are not done.
template <uint32_t kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void store_zeros(uint32_t to) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

// c (16, 8) += a (16, 16) b (16, 8)
template <class E>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats as the 32 bits of a fragment, the first in the lower half.
template <class E>
__device__ __forceinline__ uint32_t pack(float x, float y);
template <>
__device__ __forceinline__ uint32_t pack<__half>(float x, float y) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  return r;
}
template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float x, float y) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  return r;
}

// Over the four lanes that share a row of an accumulator.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Scores in units of log2.
struct ScoreScale {
  float factor, cap;  // cap 0: none
  __device__ float operator()(float x) const {
    if (cap == 0) return x * factor;
    const float e = exp2_approx(2 * kLog2E * factor * x);  // tanh(y) = 1 - 2 / (exp(2y) + 1)
    return cap * (1 - __fdividef(2, e + 1));
  }
  template <uint32_t kTiles>
  __device__ void operator()(float (&x)[kTiles][2][4]) const {
    if (cap == 0) {
#pragma unroll
      for (uint32_t i = 0; i < kTiles * 8; ++i) x[i / 8][i / 4 % 2][i % 4] *= factor;
    } else {
      for (uint32_t i = 0; i < kTiles * 8; ++i) x[i / 8][i / 4 % 2][i % 4] = (*this)(x[i / 8][i / 4 % 2][i % 4]);
    }
  }
};
__device__ __forceinline__ ScoreScale score_scale(float scale, float softcap) {
  return softcap == 0 ? ScoreScale{scale * kLog2E, 0} : ScoreScale{scale / softcap, softcap * kLog2E};
}

}  // namespace tenon::flash
