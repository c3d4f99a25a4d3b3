// These ops go with products of e4m3 codes on a GPU (e4m3_products.cuh), each at the memory's speed:
//   round_codes    x, after RMSNorm where that was claimed, as codes with a scale a row; its naive twin is
//                  round_kernel of cuda.cu
//   silu_codes     y = silu(gate) * up as codes with a scale a row (tenon/sdk/linked_rows.h)
//   row_scales     the scales of such rows side by side
//   add_to_sums    y = sums + bias + addend
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "activations.h"
#include "tenon/cuda/octet_row.cuh"
#include "tenon/cuda/warp.cuh"
#include "tenon/sdk/linked_rows.h"

namespace tenon::fp8 {

inline constexpr uint32_t kThreads = 256;

// Puts the values of all threads of the block together by `op`; each of them gets the result. A
// kernel calls it once for each type of op.
template <uint32_t kThreads = fp8::kThreads, class Op>
__device__ float over_block(float v, const Op& op) {
  __shared__ float of_warp[kThreads / 32];
  v = cuda::over_warp(v, op);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
  __syncthreads();
  v = of_warp[0];
  for (uint32_t w = 1; w < kThreads / 32; ++w) v = op(v, of_warp[w]);
  return v;
}
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// ---- round_codes ----------------------------------------------------------------------------------------------------

struct RoundCodesArgs {
  uint32_t k, padded;         // numbers of a row of x, and codes of a row of a part: those from k on are zeros
  uint32_t rows, scale_rows;  // scale_rows: a part's scales begin so many after those of the part before
  uint32_t parts;
  uint32_t has_norm;    // 1: operand kNorm is RMSNorm's weights, f32[k]
  uint32_t has_scales;  // 1: operand kXScales is f32[parts], x's scales; 0: each row has a scale
  float eps;            // RMSNorm adds it to the mean of the squares
  tenon_format x_format;
  uint32_t reserved;
  int64_t x_stride;  // elements
};
// Codes are e4m3 (rows, parts, padded), scales f32 (parts, scale_rows). Rows past the live ones get 0 and scales of 1.
// kLive stands in the place of a norm and of scales of x where the arguments have none.
struct RoundCodesOperand {
  enum : uint32_t { kCodes, kScales, kX, kLive, kNorm, kXScales, kCount };
};
struct RoundCodesPointers {
  const void* x;
  const float *norm, *scales;  // or nullptr
  const uint32_t* live;
  uint8_t* codes;
  float* to_scales;
};

// Divides the numbers of a row by its scale; a number that is not finite becomes NaN.
struct RowQuotient {
  float scale, inverse;
  bool ordinary;  // no number's magnitude is above 448 scales, and the scale is near neither end of what a float holds

  __device__ RowQuotient(float of, bool is_largest)
      : scale(of), inverse(1 / of), ordinary(is_largest && of > 0x1p-60F && of < 0x1p60F) {}
  // By Markstein's theorem the inverse's product and what it leaves over take a third of a division's instructions.
  __device__ float operator()(float v) const {
    if (!ordinary) return v / scale + (v - v);
    const float near = v * inverse;
    return fmaf(fmaf(-near, scale, v), inverse, near);
  }
};

// Returns the codes of 8 numbers of x.
__device__ inline uint2 codes_of(const float (&v)[8], const RowQuotient& quotient) {
  uint32_t pairs[4];
  for (uint32_t i = 0; i < 4; ++i) {
    const float2 pair{quotient(v[2 * i]), quotient(v[2 * i + 1])};
    pairs[i] = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
  }
  return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

// A block has a row, of which each thread holds kOctets octets. kWide: octets of k are whole and lie at whole 16 bytes.
template <class X, bool kWide, uint32_t kOctets>
__global__ void __launch_bounds__(kThreads) round_codes_kernel(const RoundCodesArgs a, const RoundCodesPointers p) {
  cuda::wait();
  const uint32_t row = blockIdx.x;
  const bool live = row < *p.live;
  const auto octet_of = [](uint32_t j) { return j * kThreads + threadIdx.x; };
  const cuda::OctetRow<X, kWide, false> x(static_cast<const X*>(p.x) + row * a.x_stride, live ? a.k : 0, nullptr);
  float v[kOctets][8];
  for (uint32_t j = 0; j < kOctets; ++j) x.load(octet_of(j), v[j]);
  // RMSNorm comes first.
  if (a.has_norm != 0) {
    float sum = 0;
    for (const auto& octet : v) {
      for (const float f : octet) sum = fmaf(f, f, sum);
    }
    const float factor = rsqrtf(over_block(sum, Sum{}) / static_cast<float>(a.k) + a.eps);
    for (uint32_t j = 0; j < kOctets; ++j) x.normalize(octet_of(j), factor, p.norm, v[j]);
  }
  // The row's scale comes next.
  float scale = 1;
  if (a.has_scales == 0) {
    float largest = 0;
    for (const auto& octet : v) {
      for (const float f : octet) largest = fmaxf(largest, fabsf(f));
    }
    scale = row_scale(over_block(largest, Largest{}));
  }
  // The codes come last.
  for (uint32_t part = 0; part < a.parts; ++part) {
    if (a.has_scales != 0 && live) scale = p.scales[part];
    if (threadIdx.x == 0) p.to_scales[part * a.scale_rows + row] = scale;
    const RowQuotient quotient(scale, a.has_scales == 0);
    auto* to = reinterpret_cast<uint2*>(p.codes + (size_t{row} * a.parts + part) * a.padded);
    for (uint32_t j = 0; j < kOctets; ++j) {
      if (octet_of(j) < a.padded / 8) to[octet_of(j)] = codes_of(v[j], quotient);
    }
  }
}

// Returns how many columns of a row a block holds whose threads have so many octets each. Rows that are longer than
// kMostColumns are not multiplied as codes.
constexpr int64_t held_columns(uint32_t octets) {
  return int64_t{8} * kThreads * octets;
}
inline constexpr uint32_t kFewOctets = 2, kManyOctets = 8;
inline constexpr int64_t kMostColumns = held_columns(kManyOctets);

template <class X>
void run_round_codes_of(const RoundCodesArgs& a, const RoundCodesPointers& p, const cuda::Launch& launch) {
  const bool wide = cuda::detail::vectored({p.x, p.norm}, {a.k, a.x_stride}),
             few = a.padded <= held_columns(kFewOctets);
  launch(!wide ? &round_codes_kernel<X, false, kManyOctets>
         : few ? &round_codes_kernel<X, true, kFewOctets>
               : &round_codes_kernel<X, true, kManyOctets>,
         {.blocks = {a.rows}, .threads = {kThreads}}, a, p);
}
inline RoundCodesPointers round_codes_pointers(const RoundCodesArgs& a, const cuda::Launch& launch) {
  using Operand = RoundCodesOperand;
  RoundCodesPointers p{};
  p.codes = launch.ptr<uint8_t>(Operand::kCodes);
  p.to_scales = launch.ptr<float>(Operand::kScales);
  p.x = launch.ptr<const void>(Operand::kX);
  p.live = launch.ptr<const uint32_t>(Operand::kLive);
  if (a.has_norm != 0) p.norm = launch.ptr<const float>(Operand::kNorm);
  if (a.has_scales != 0) p.scales = launch.ptr<const float>(Operand::kXScales);
  return p;
}
inline void run_round_codes(const RoundCodesArgs& a, const cuda::Launch& launch) {
  const RoundCodesPointers p = round_codes_pointers(a, launch);
  if (a.x_format == TENON_F16) return run_round_codes_of<__half>(a, p, launch);
  run_round_codes_of<float>(a, p, launch);
}

// ---- silu_codes -----------------------------------------------------------------------------------------------------

struct SiluCodesArgs {
  uint32_t columns;          // y has so many columns: whole octets
  uint32_t rows, first_row;  // the live count knows y's first row as first_row
  uint32_t has_bias;
  int64_t sums_stride, y_stride;  // elements
};
// Sums are f16 (rows, gate and up: 2 columns), a bias is f32[2 columns]. Nothing is written past the live rows.
// Where there is no bias, kLive stands in its place.
struct SiluCodesOperand {
  enum : uint32_t { kY, kSums, kLive, kBias, kCount };
};
inline constexpr uint32_t kSiluThreads = 512, kSiluOctets = kMostColumns / (8 * kSiluThreads);  // octets: a thread's

// Computes 8 numbers of y from column `at` on.
__device__ inline void gated(const SiluCodesArgs& a, const __half* sums, const float* bias, uint32_t at,
                             float (&y)[8]) {
  const auto gate = cuda::detail::load_pack<__half, 8>(sums + at),
             up = cuda::detail::load_pack<__half, 8>(sums + a.columns + at);
  for (uint32_t i = 0; i < 8; ++i) {
    float g = cuda::detail::widen(gate.v[i]), u = cuda::detail::widen(up.v[i]);
    if (bias != nullptr) {
      g += bias[at + i];
      u += bias[a.columns + at + i];
    }
    y[i] = __fdividef(g, 1 + __expf(-g)) * u;
  }
}

// A block has a row, which stays in its registers.
inline __global__ void __launch_bounds__(kSiluThreads, 2)
    silu_codes_kernel(const SiluCodesArgs a, const __half* sums, const float* bias, const uint32_t* live, uint8_t* y) {
  cuda::wait();
  const uint32_t row = blockIdx.x;
  if (a.first_row + row >= *live) return;
  sums += row * a.sums_stride;
  y += row * a.y_stride;
  float v[kSiluOctets][8] = {}, largest = 0;
  for (uint32_t j = 0; j < kSiluOctets; ++j) {
    const uint32_t at = 8 * (j * kSiluThreads + threadIdx.x);
    if (at < a.columns) gated(a, sums, bias, at, v[j]);
    for (const float f : v[j]) largest = fmaxf(largest, fabsf(f));
  }
  const float scale = row_scale(over_block<kSiluThreads>(largest, Largest{}));
  const RowQuotient quotient(scale, true);
  for (uint32_t j = 0; j < kSiluOctets; ++j) {
    const uint32_t at = 8 * (j * kSiluThreads + threadIdx.x);
    if (at < a.columns) *reinterpret_cast<uint2*>(y + at) = codes_of(v[j], quotient);
  }
  if (threadIdx.x == 0) *reinterpret_cast<float*>(y + a.columns) = scale;
}
inline void run_silu_codes(const SiluCodesArgs& a, const cuda::Launch& launch) {
  using Operand = SiluCodesOperand;
  const auto* bias = a.has_bias != 0 ? launch.ptr<const float>(Operand::kBias) : nullptr;
  launch(&silu_codes_kernel, {.blocks = {a.rows}, .threads = {kSiluThreads}}, a,
         launch.ptr<const __half>(Operand::kSums), bias, launch.ptr<const uint32_t>(Operand::kLive),
         launch.ptr<uint8_t>(Operand::kY));
}

// ---- row_scales -----------------------------------------------------------------------------------------------------

struct RowScalesArgs {
  uint32_t rows, reserved;
  int64_t stride, offset;  // bytes: of rows, and of the scale in a row
};
struct RowScalesOperand {
  enum : uint32_t { kScales, kX, kCount };  // f32[rows], rows
};
inline __global__ void __launch_bounds__(kThreads)
    row_scales_kernel(const RowScalesArgs a, const uint8_t* x, float* scales) {
  cuda::wait();
  const uint32_t row = blockIdx.x * kThreads + threadIdx.x;
  if (row < a.rows) scales[row] = *reinterpret_cast<const float*>(x + row * a.stride + a.offset);
}
inline void run_row_scales(const RowScalesArgs& a, const cuda::Launch& launch) {
  using Operand = RowScalesOperand;
  launch(&row_scales_kernel, {.blocks = {(a.rows + kThreads - 1) / kThreads}, .threads = {kThreads}}, a,
         launch.ptr<const uint8_t>(Operand::kX), launch.ptr<float>(Operand::kScales));
}

// ---- add_to_sums ----------------------------------------------------------------------------------------------------

struct AddToSumsArgs {
  uint32_t rows, first_row, columns;  // the live count knows y's first row as first_row
  uint32_t has_bias, has_addend, reserved;
  int64_t y_stride, sums_stride, addend_stride;  // floats
};
// Where has_bias or has_addend is 0, kLive stands in the place of kBias or kAddend.
struct AddToSumsOperand {
  enum : uint32_t { kY, kSums, kLive, kBias, kAddend, kCount };
};
struct AddToSumsPointers {
  float* y;
  const float* sums;
  const uint32_t* live;
  const float *bias, *addend;  // or nullptr
};
// A thread has a number of y.
inline __global__ void __launch_bounds__(kThreads)
    add_to_sums_kernel(const AddToSumsArgs a, const AddToSumsPointers p) {
  cuda::wait();
  const uint32_t row = blockIdx.y, column = blockIdx.x * kThreads + threadIdx.x;
  if (a.first_row + row >= *p.live || column >= a.columns) return;
  float v = p.sums[row * a.sums_stride + column];
  if (p.bias != nullptr) v += p.bias[column];
  if (p.addend != nullptr) v += p.addend[row * a.addend_stride + column];
  p.y[row * a.y_stride + column] = v;
}
inline AddToSumsPointers add_to_sums_pointers(const AddToSumsArgs& a, const cuda::Launch& launch) {
  using Operand = AddToSumsOperand;
  AddToSumsPointers p{};
  p.y = launch.ptr<float>(Operand::kY);
  p.sums = launch.ptr<const float>(Operand::kSums);
  p.live = launch.ptr<const uint32_t>(Operand::kLive);
  if (a.has_bias != 0) p.bias = launch.ptr<const float>(Operand::kBias);
  if (a.has_addend != 0) p.addend = launch.ptr<const float>(Operand::kAddend);
  return p;
}
inline void run_add_to_sums(const AddToSumsArgs& a, const cuda::Launch& launch) {
  launch(&add_to_sums_kernel, {.blocks = {(a.columns + kThreads - 1) / kThreads, a.rows}, .threads = {kThreads}}, a,
         add_to_sums_pointers(a, launch));
}

}  // namespace tenon::fp8
