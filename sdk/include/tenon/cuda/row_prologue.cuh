// A row of x on its way into a product: RMSNorm if wanted, then the form that a format multiplies (formats.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "tenon/cuda/formats.cuh"

namespace tenon::cuda {

inline constexpr uint32_t kMatvecWarps = 16, kMatvecThreads = 32 * kMatvecWarps;

struct RowSource {
  const float* x;
  const float* norm;  // weights of RMSNORM; nullptr: none
  float eps;
  uint32_t k, padded;  // k filled up to whole chunks
};

// 8 k of a row, as they lie in shared memory: of each 32 k first the high parts, then the low parts. Formats that
// multiply in f32 keep the natural order.
template <class F>
struct StagedOctet {
  static constexpr bool kSplit = !std::is_void_v<typename F::Half>;
  static constexpr uint32_t kGap = kSplit ? 64 : 16;
  static __device__ uint32_t offset(uint32_t octet) { return kSplit ? octet / 4 * 128 + octet % 4 * 16 : octet * 32; }
};

namespace detail {

// v as high + low; returns their sum over the 8.
template <class F>
__device__ inline float split(const float (&v)[8], uint4& high, uint4& low) {
  using H = typename F::Half;
  uint32_t h[4], l[4];
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    // See Int4Format.
    const float up = F::kGroup != 0 && i % 2 == 1 ? 16 : 1, a = v[2 * i] / up, b = v[2 * i + 1] / up;
    h[i] = to_halves<H>(a, b);
    const float first = from_half<H>(h[i] & 0xffff), second = from_half<H>(h[i] >> 16);
    l[i] = to_halves<H>(a - first, b - second);
    sum += up * ((first + from_half<H>(l[i] & 0xffff)) + (second + from_half<H>(l[i] >> 16)));
  }
  high = {h[0], h[1], h[2], h[3]}, low = {l[0], l[1], l[2], l[3]};
  return sum;
}

__device__ inline void load_octet(const float* p, uint32_t k, uint32_t n, float (&v)[8]) {
  if (k + 8 <= n && reinterpret_cast<uintptr_t>(p + k) % 16 == 0) {
    const auto a = *reinterpret_cast<const float4*>(p + k), b = *reinterpret_cast<const float4*>(p + k + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
    for (uint32_t i = 0; i < 8; ++i) v[i] = k + i < n ? p[k + i] : 0;
  }
}

__device__ inline float warp_sum(float v) {
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0U, v, d);
  return v;
}

}  // namespace detail

// By all kMatvecThreads threads of a block, after the wait; synchronizes them at its end. stage: 4 bytes a k, 16-byte
// aligned; block: 48 floats; both in shared memory. put(octet, high, low) gets 8 k each, put_sum(group, sum) the sums
// of a kGroup, in steps of 2^-24. put may write the octet's own place in stage.
template <class F, class Put, class PutSum>
__device__ RowInfo prepare_row(const RowSource& s, uint8_t* stage, float* block, const Put& put,
                               const PutSum& put_sum) {
  using Octet = StagedOctet<F>;
  const uint32_t octets = s.padded / 8, warp = threadIdx.x / 32, lane = lane_id();
  float square = 0, largest = 0;
  for (uint32_t o = threadIdx.x; o < octets; o += kMatvecThreads) {
    float v[8];
    detail::load_octet(s.x, 8 * o, s.k, v);
    if (s.norm != nullptr) {
      float weight[8];
      detail::load_octet(s.norm, 8 * o, s.k, weight);
      for (int i = 0; i < 8; ++i) square = fmaf(v[i], v[i], square), v[i] *= weight[i];
    }
    for (const float f : v) largest = fmaxf(largest, fabsf(f));
    auto* to = reinterpret_cast<float4*>(stage + Octet::offset(o));
    to[0] = {v[0], v[1], v[2], v[3]}, to[Octet::kGap / 16] = {v[4], v[5], v[6], v[7]};
  }
  square = detail::warp_sum(square);
  for (int d = 16; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, d));
  if (lane == 0) block[warp] = square, block[16 + warp] = largest;
  __syncthreads();
  square = 0, largest = 0;
  for (uint32_t w = 0; w < kMatvecWarps; ++w) square += block[w], largest = fmaxf(largest, block[16 + w]);
  const float factor = s.norm != nullptr ? rsqrtf(square / static_cast<float>(s.k) + s.eps) : 1;

  RowInfo info{1, 0};
  float scale = 1;
  if constexpr (F::kScaled) {
    // The exponent's bits of 2^13 over the largest's power of two.
    const uint32_t bits = min(267 - (__float_as_uint(largest * factor) >> 23), 253U);
    scale = __uint_as_float(bits << 23), info.unscale = __uint_as_float((254 - bits) << 23);
  }
  float total = 0;
  for (uint32_t begin = 0; begin < octets; begin += kMatvecThreads) {  // whole warps, for the shuffles
    const uint32_t o = begin + threadIdx.x;
    float sum = 0;
    if (o < octets) {
      const auto* from = reinterpret_cast<const float4*>(stage + Octet::offset(o));
      const float4 a = from[0], b = from[Octet::kGap / 16];
      float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      for (float& f : v) f = f * factor * scale;
      uint4 high, low;
      if constexpr (Octet::kSplit) {
        sum = detail::split<F>(v, high, low);
      } else {
        high = __builtin_bit_cast(uint4, make_float4(v[0], v[1], v[2], v[3]));
        low = __builtin_bit_cast(uint4, make_float4(v[4], v[5], v[6], v[7]));
      }
      put(o, high, low);
    }
    total += sum;
    if constexpr (F::kGroup != 0) {
      constexpr uint32_t kLanes = F::kGroup / 8;
      for (uint32_t d = 1; d < kLanes; d *= 2) sum += __shfl_xor_sync(~0U, sum, d);
      if (o < octets && lane % kLanes == 0) put_sum(o / kLanes, sum * kDenormalStep);
    }
  }
  if constexpr (F::kTotal) {
    total = detail::warp_sum(total);
    if (lane == 0) block[32 + warp] = total;
  }
  __syncthreads();
  if constexpr (F::kTotal) {
    for (uint32_t w = 0; w < kMatvecWarps; ++w) info.total += block[32 + w];
  }
  return info;
}

}  // namespace tenon::cuda
