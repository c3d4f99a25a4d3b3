// This leaves results for the product after attention (tenon/sdk/linked_rows.h): halves, row after row or in the order
// of the tensor cores.
#pragma once

#include "cuda_ops.h"
#include "tenon/cuda/mma.cuh"

namespace tenon::flash {

// This is a query's result in such a tensor. The head's dimensions are whole stretches of 32 columns.
class HalvesResult {
 public:
  static constexpr uint32_t kStretch = 32, kOctets = 4,
                            kValues = 8;  // columns; octets of a stretch, values of an octet
  __device__ __forceinline__ HalvesResult(const GpuArgs& a, const GpuPointers& p, uint32_t row, uint32_t head)
      : a_(a), rows_(p.out, a.rows, a.q_heads * a.kv.v.dim) {
    const uint32_t first = head * a.kv.v.dim;
    at_ = is_tiled() ? rows_.at(row, first / kValues)
                     : reinterpret_cast<uint8_t*>(p.out) + (size_t{row} * a.q_heads * a.kv.v.dim + first) * 2;
  }

  // Stores dimensions d and d + 1; d is even.
  __device__ __forceinline__ void store_pair(uint32_t d, float first, float second) const {
    const uint32_t octet = d / kStretch * kOctets + d % kValues / 2;
    uint8_t* to = is_tiled() ? rows_.later(at_, octet) + d % kStretch / kValues * 4 : at_ + d * 2;
    *reinterpret_cast<uint32_t*>(to) = word(octet, first, second);
  }
  // Stores an octet of a stretch: the pairs of dimensions 8 i + 2 of_stretch and the one after, for i from 0 to 3.
  __device__ __forceinline__ void store_octet(uint32_t stretch, uint32_t of_stretch, const float (&first)[4],
                                              const float (&second)[4]) const {
    const uint32_t octet = stretch * kOctets + of_stretch;
    uint32_t words[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) words[i] = word(octet, first[i], second[i]);
    if (is_tiled()) {
      *reinterpret_cast<uint4*>(rows_.later(at_, octet)) = {words[0], words[1], words[2], words[3]};
      return;
    }
    auto* to = reinterpret_cast<uint32_t*>(at_) + stretch * (kStretch / 2) + of_stretch;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) to[i * (kValues / 2)] = words[i];
  }

 private:
  __device__ __forceinline__ bool is_tiled() const { return a_.out_order != cuda::Tiled::kNo; }
  __device__ __forceinline__ uint32_t word(uint32_t octet, float first, float second) const {
    if (a_.out == Out::kBf16) return cuda::to_halves<__nv_bfloat16>(first, second);
    const float scale = cuda::octet_scale(a_.out_order, octet);
    return cuda::to_halves<__half>(cuda::saturated<__half>(first * scale), cuda::saturated<__half>(second * scale));
  }

  const GpuArgs& a_;
  const cuda::TiledRows rows_;
  uint8_t* at_;
};

// Stores what a lane has of a row of an mma's sums: value(i, 0) and value(i, 1) are dimensions 8 i + 2 (lane % 4) and
// the one after, of `dims`.
template <uint32_t D, class Value>
__device__ __forceinline__ void store_halves(const HalvesResult& result, uint32_t dims, const Value& value) {
#pragma unroll
  for (uint32_t stretch = 0; stretch < D / HalvesResult::kStretch; ++stretch) {
    if (stretch * HalvesResult::kStretch >= dims) break;
    float first[4], second[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      first[i] = value(4 * stretch + i, 0);
      second[i] = value(4 * stretch + i, 1);
    }
    result.store_octet(stretch, threadIdx.x % 4, first, second);
  }
}

}  // namespace tenon::flash
