// The threads of a block go over a row several times, 8 numbers at a time: rounding has to know the norm and the
// largest number first. The row is copied to shared memory, where it fits: L2 would be read as often.
//
//   extern __shared__ uint4 held[];
//   OctetRow<float, true, true> row(x, k, held);
//   row.hold();
//   for (uint32_t o = threadIdx.x; o < k / 8; o += blockDim.x) row.load(o, v);
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "tenon/cuda/block_size.h"
#include "tenon/cuda/gemm_rows.cuh"

namespace tenon::cuda {

// X is float or __half. kWide: octets are whole and lie at whole 16 bytes. kHeld: they are in shared memory, k numbers
// of X, the n-th 16 bytes of all octets together, so that the lanes of a warp use all banks.
template <class X, bool kWide, bool kHeld>
class OctetRow {
 public:
  static constexpr uint32_t kWords = sizeof(X) * 8 / sizeof(uint4);  // an octet has so many pieces of 16 bytes

  OctetRow() = default;
  __device__ OctetRow(const X* x, uint32_t k, uint4* held) : x_(x), held_(held), k_(k) {}

  // All threads of the block copy the row to shared memory.
  __device__ void hold() {
    if constexpr (kHeld) {
      const auto* from = reinterpret_cast<const uint4*>(x_);
#pragma unroll 4
      for (uint32_t i = threadIdx.x; i < octets() * kWords; i += blockDim.x) {
        held_[i % kWords * octets() + i / kWords] = from[i];
      }
      __syncthreads();
    }
  }
  // Zeros stand in for what is not of the row.
  __device__ void load(uint32_t octet, float (&v)[8]) const {
    union {
      uint4 words[kWords];
      X numbers[8];
    } both{};
    if constexpr (kHeld) {
      for (uint32_t w = 0; w < kWords && octet < octets(); ++w) both.words[w] = held_[w * octets() + octet];
    } else if constexpr (kWide) {
      const auto* from = reinterpret_cast<const uint4*>(x_) + octet * kWords;
      for (uint32_t w = 0; w < kWords && octet < octets(); ++w) both.words[w] = from[w];
    } else {
      for (uint32_t i = 0; i < 8 && 8 * octet + i < k_; ++i) both.numbers[i] = x_[8 * octet + i];
    }
    for (uint32_t i = 0; i < 8; ++i) v[i] = static_cast<float>(both.numbers[i]);
  }

  // Applies RMSNorm, whose weights are f32[k] at whole 16 bytes if octets are; `factor` is the row's.
  __device__ void normalize(uint32_t octet, float factor, const float* norm, float (&v)[8]) const {
    alignas(16) float weights[8] = {};
    if constexpr (kWide) {
      if (octet >= octets()) return;
      const auto* from = reinterpret_cast<const float4*>(norm) + 2 * size_t{octet};
      *reinterpret_cast<float4*>(weights) = from[0];
      *reinterpret_cast<float4*>(weights + 4) = from[1];
    } else {
      for (uint32_t i = 0; i < 8 && 8 * octet + i < k_; ++i) weights[i] = norm[8 * octet + i];
    }
    for (uint32_t i = 0; i < 8; ++i) v[i] = v[i] * factor * weights[i];
  }

 private:
  __device__ uint32_t octets() const { return k_ / 8; }

  const X* x_ = nullptr;
  uint4* held_ = nullptr;
  uint32_t k_ = 0;
};

struct OctetRows {
  const void* x;
  const float* norm;    // or nullptr
  int64_t k, x_stride;  // elements
};
// Calls f with an OctetRow of the type that such rows are to have. Small blocks can hold a row of up to 93 KB.
template <class X, class F>
void with_octet_rows(const OctetRows& rows, const F& f) {
  const bool wide = detail::vectored({rows.x, rows.norm}, {rows.k, rows.x_stride});
  constexpr int64_t kMost = (kSmallBlockBytes - 1024) / sizeof(X);
  if (wide && rows.k <= kMost) return f(OctetRow<X, true, true>());
  if (wide) return f(OctetRow<X, true, false>());
  f(OctetRow<X, false, false>());
}

}  // namespace tenon::cuda
