// These ops go over rows at the memory's speed, around a product of many rows. Rows may be strided; with whole vectors
// of 8 elements everywhere, 16-byte accesses are used.
//   record_norm_rows      y = convert(x) or convert(rmsnorm(x)); f32 to f16, bf16 or f32
//   record_silu_mul_rows  y = silu(gate) * up; f32, f16 or bf16 to the same or, of halves, f32
// Past the live rows the first writes zeros, the second nothing. Naive twins: rms_norm and silu_mul of plugins/op.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda {
namespace detail {

constexpr uint32_t kRowThreads = 256, kMostRowThreads = 512;
constexpr int kRowVector = 8;

template <class T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Pack {
  T v[V];
};
template <class T, int V>
__device__ __forceinline__ Pack<T, V> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, V>*>(p);
}
template <class T, int V>
__device__ __forceinline__ void store_pack(T* p, const Pack<T, V>& pack) {
  *reinterpret_cast<Pack<T, V>*>(p) = pack;
}

// An f16 saturates: one activation beyond its range must not become infinite. NaN stays NaN.
template <class T>
__device__ __forceinline__ T narrow(float value) {
  if constexpr (std::is_same_v<T, __half>) {
    constexpr float kMost = 65504.0f;
    return __float2half_rn(value > kMost ? kMost : value < -kMost ? -kMost : value);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

struct NormRowsArgs {
  int64_t columns, x_stride, y_stride;  // elements
  uint32_t rows;
  float eps;
  tenon_format y_format;
  uint32_t normed;
};

__device__ __forceinline__ float block_sum(float value) {
  __shared__ float of_warp[kMostRowThreads / 32];
  value = warp_sum(value);
  if (lane_id() == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (uint32_t w = 0; w < blockDim.x / 32; ++w) sum += of_warp[w];
  return sum;
}
template <int V>
__device__ __forceinline__ float sum_of_squares(const Pack<float, V>& in) {
  float sum = 0;
  for (int e = 0; e < V; ++e) sum += in.v[e] * in.v[e];
  return sum;
}
__device__ __forceinline__ float norm_factor(const NormRowsArgs& a, float sum) {
  return rsqrtf(sum / static_cast<float>(a.columns) + a.eps);
}
// This is what a row is multiplied by; a row without a norm stays as it is.
struct RowNorm {
  bool there;
  float factor;
  const float* weight;  // (columns)
};
// Stores the pack of a row that begins at column i.
template <class T, int V>
__device__ __forceinline__ void store_normed(const RowNorm& norm, Pack<float, V> in, int64_t i, T* y) {
  if (norm.there) {
    const auto w = load_pack<float, V>(norm.weight + i);
    for (int e = 0; e < V; ++e) in.v[e] *= norm.factor * w.v[e];
  }
  Pack<T, V> out;
  for (int e = 0; e < V; ++e) out.v[e] = narrow<T>(in.v[e]);
  store_pack<T, V>(y + i, out);
}

// A block takes a row, of which each thread keeps at most kHeldPacks packs.
constexpr uint32_t kHeldPacks = 2;
template <class T>
__global__ void __launch_bounds__(kMostRowThreads)
    norm_held_rows_kernel(NormRowsArgs a, const float* __restrict__ x, const float* __restrict__ weight,
                          T* __restrict__ y, const uint32_t* live) {
  wait();
  const uint32_t row = blockIdx.x;
  const bool padding = row >= *live;
  x += row * a.x_stride;
  y += row * a.y_stride;
  const auto column = [](uint32_t pack) { return (int64_t{pack} * blockDim.x + threadIdx.x) * kRowVector; };
  Pack<float, kRowVector> in[kHeldPacks] = {};
#pragma unroll
  for (uint32_t p = 0; p < kHeldPacks; ++p) {
    if (!padding && column(p) < a.columns) in[p] = load_pack<float, kRowVector>(x + column(p));
  }
  float factor = 1;
  if (a.normed != 0) {
    float sum = 0;
#pragma unroll
    for (uint32_t p = 0; p < kHeldPacks; ++p) sum += sum_of_squares(in[p]);
    factor = norm_factor(a, block_sum(sum));
  }
#pragma unroll
  for (uint32_t p = 0; p < kHeldPacks; ++p) {
    if (column(p) < a.columns) store_normed({a.normed != 0, factor, weight}, in[p], column(p), y);
  }
}

// A block takes a row of any length. Its second pass finds the row in L1.
template <class T, int V>
__global__ void __launch_bounds__(kRowThreads)
    norm_rows_kernel(NormRowsArgs a, const float* __restrict__ x, const float* __restrict__ weight, T* __restrict__ y,
                     const uint32_t* live) {
  wait();
  const uint32_t row = blockIdx.x, first = threadIdx.x * V, step = kRowThreads * V;
  x += row * a.x_stride;
  y += row * a.y_stride;
  const bool padding = row >= *live;
  float factor = 1;
  if (a.normed != 0 && !padding) {
    float sum = 0;
    for (int64_t i = first; i < a.columns; i += step) sum += sum_of_squares(load_pack<float, V>(x + i));
    factor = norm_factor(a, block_sum(sum));
  }
  for (int64_t i = first; i < a.columns; i += step) {
    Pack<float, V> in{};
    if (!padding) in = load_pack<float, V>(x + i);
    store_normed({a.normed != 0, factor, weight}, in, i, y);
  }
}

// Says whether all pointers, and rows of such lengths, are whole vectors.
inline bool vectored(std::initializer_list<const void*> pointers, std::initializer_list<int64_t> lengths) {
  for (const void* p : pointers) {
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  }
  for (const int64_t n : lengths) {
    if (n % kRowVector != 0) return false;
  }
  return true;
}

// Calls f(T()), where T is the type of a format's elements.
template <class F>
void with_float_type(tenon_format format, F&& f) {
  switch (format) {
    case TENON_F16:
      return f(__half());
    case TENON_BF16:
      return f(__nv_bfloat16());
    case TENON_F32:
      return f(float());
    default:
      throw sdk::Failed(std::string("rows are f32, f16 or bf16, not ") + tenon_format_name(format));
  }
}

// Where there is no norm, kLive stands in the place of kNorm.
struct NormRowsOperand {
  enum : uint32_t { kX, kY, kLive, kNorm, kCount };
};
inline void norm_rows(const NormRowsArgs& a, const Launch& l) {
  using Operand = NormRowsOperand;
  const auto* x = l.ptr<const float>(Operand::kX);
  const auto* weight = a.normed != 0 ? l.ptr<const float>(Operand::kNorm) : nullptr;
  with_float_type(a.y_format, [&]<class T>(T) {
    auto* y = l.ptr<T>(Operand::kY);
    const bool wide = vectored({x, weight, y}, {a.columns, a.x_stride, a.y_stride});
    const auto* live = l.ptr<const uint32_t>(Operand::kLive);
    constexpr int64_t kHeldByThread = int64_t{kHeldPacks} * kRowVector;
    if (wide && a.columns <= kHeldByThread * kMostRowThreads) {
      const uint32_t threads = a.columns <= kHeldByThread * kRowThreads ? kRowThreads : kMostRowThreads;
      return l(&norm_held_rows_kernel<T>, {.blocks = {a.rows}, .threads = {threads}}, a, x, weight, y, live);
    }
    l(wide ? &norm_rows_kernel<T, kRowVector> : &norm_rows_kernel<T, 1>, {.blocks = {a.rows}, .threads = {kRowThreads}},
      a, x, weight, y, live);
  });
}

struct SiluMulArgs {
  int64_t columns, x_stride, y_stride;  // columns of y; strides in elements
  uint32_t rows, first_row;             // the row that the live count knows y's first as
  uint32_t biased;
  tenon_format x_format, y_format;
  uint32_t padding;
};

// A half that was too large for an f16 is infinite, where narrow() would have left the largest f16.
template <class T>
__device__ __forceinline__ float widen(T value) {
  if constexpr (std::is_same_v<T, __half>) {
    constexpr float kMost = 65504.0f;
    const float v = __half2float(value);
    return v > kMost ? kMost : v < -kMost ? -kMost : v;
  } else {
    return static_cast<float>(value);
  }
}

template <class X, class Y, int V>
__global__ void __launch_bounds__(kRowThreads)
    silu_mul_rows_kernel(SiluMulArgs a, const X* __restrict__ x, Y* __restrict__ y, const uint32_t* live,
                         const float* __restrict__ bias) {
  wait();
  const int64_t row = blockIdx.y, i = (int64_t{blockIdx.x} * kRowThreads + threadIdx.x) * V;
  if (a.first_row + row >= *live || i >= a.columns) return;
  x += row * a.x_stride + i;
  const auto gate = load_pack<X, V>(x), up = load_pack<X, V>(x + a.columns);
  Pack<Y, V> out;
  for (int e = 0; e < V; ++e) {
    float g = widen(gate.v[e]), u = widen(up.v[e]);
    if (a.biased != 0) {
      g += bias[i + e];
      u += bias[a.columns + i + e];
    }
    // The quick functions are off by far less than half a step of a half.
    const float silu = sizeof(Y) < sizeof(float) ? __fdividef(g, 1.0f + __expf(-g)) : g / (1.0f + expf(-g));
    out.v[e] = narrow<Y>(silu * u);
  }
  store_pack<Y, V>(y + row * a.y_stride + i, out);
}

// Where there is no bias, kLive stands in the place of kBias.
struct SiluMulOperand {
  enum : uint32_t { kX, kY, kLive, kBias, kCount };
};
template <class X, class Y>
void silu_mul_rows_as(const SiluMulArgs& a, const Launch& l) {
  using Operand = SiluMulOperand;
  const auto* bias = a.biased != 0 ? l.ptr<const float>(Operand::kBias) : nullptr;
  const auto* x = l.ptr<const X>(Operand::kX);
  auto* y = l.ptr<Y>(Operand::kY);
  const bool wide = vectored({x, y}, {a.columns, a.x_stride, a.y_stride});
  const int64_t a_block = int64_t{kRowThreads} * (wide ? kRowVector : 1);
  const auto blocks = static_cast<uint32_t>((a.columns + a_block - 1) / a_block);
  l(wide ? &silu_mul_rows_kernel<X, Y, kRowVector> : &silu_mul_rows_kernel<X, Y, 1>,
    {.blocks = {blocks, a.rows}, .threads = {kRowThreads}}, a, x, y, l.ptr<const uint32_t>(Operand::kLive), bias);
}
inline void silu_mul_rows(const SiluMulArgs& a, const Launch& l) {
  with_float_type(a.x_format, [&]<class X>(X) {
    if (a.y_format == TENON_F32) return silu_mul_rows_as<X, float>(a, l);
    if (a.y_format != a.x_format) throw sdk::Failed("silu_mul_rows takes halves of one type, or gives f32");
    silu_mul_rows_as<X, X>(a, l);
  });
}

}  // namespace detail

struct NormRowsCall {
  tenon_tid x, y;      // f32 (rows, k); f32, f16 or bf16 (rows, k)
  tenon_tid weight;    // f32[k] of an RMSNorm; 0: y = x
  float eps;           // the norm's epsilon
  tenon_tid row_live;  // u32
};
inline void record_norm_rows(sdk::Recorder& rec, const NormRowsCall& c) {
  const tenon_tensor from = rec.describe(c.x), to = rec.describe(c.y);
  const int64_t bytes = tenon_format_block(to.format).bytes;
  using Operand = detail::NormRowsOperand;
  const std::vector<tenon_operand> operands = sdk::operands_by(
      Operand::kCount,
      {{Operand::kX, c.x, TENON_READ}, {Operand::kY, c.y, TENON_WRITE}, {Operand::kLive, c.row_live, TENON_READ}},
      {c.row_live, TENON_READ}, {{Operand::kNorm, c.weight, TENON_READ}});
  sdk::OpSpec spec{.name = c.weight != 0 ? "norm_rows" : "convert_rows", .operands = operands, .chunks = {}};
  const auto columns = static_cast<double>(from.dim[1]);
  spec.cost.read[kCostPerRow] = 4 * columns;
  spec.cost.written[kCostPerRow] = static_cast<double>(bytes) * columns;
  spec.cost.flops[kCostPerRow] = c.weight != 0 ? 4 * columns : 0;
  emit<&detail::norm_rows>(rec, spec,
                           detail::NormRowsArgs{from.dim[1], rec.floats_of_row(c.x), to.stride[0] / bytes,
                                                static_cast<uint32_t>(from.dim[0]), c.eps, to.format, c.weight != 0});
}

struct SiluMulCall {
  tenon_tid x, bias, y, row_live;  // (rows, 2 n), f32[2 n] or 0, (rows, n)
  uint32_t first_row = 0;          // the number of the first row of x and y, as row_live counts
  double cost_share = 1;           // it is for this share of the step's rows
};
inline void record_silu_mul_rows(sdk::Recorder& rec, const SiluMulCall& c) {
  const tenon_tensor from = rec.describe(c.x), to = rec.describe(c.y);
  const int64_t in_bytes = tenon_format_block(from.format).bytes, out_bytes = tenon_format_block(to.format).bytes;
  using Operand = detail::SiluMulOperand;
  const std::vector<tenon_operand> operands = sdk::operands_by(
      Operand::kCount,
      {{Operand::kX, c.x, TENON_READ}, {Operand::kY, c.y, TENON_WRITE}, {Operand::kLive, c.row_live, TENON_READ}},
      {c.row_live, TENON_READ}, {{Operand::kBias, c.bias, TENON_READ}});
  sdk::OpSpec spec{.name = "silu_mul_rows", .operands = operands, .chunks = {}};
  const double columns = c.cost_share * static_cast<double>(to.dim[1]);
  spec.cost.read[kCostPerRow] = static_cast<double>(2 * in_bytes) * columns;
  spec.cost.written[kCostPerRow] = static_cast<double>(out_bytes) * columns;
  spec.cost.flops[kCostPerRow] = 4 * columns;
  detail::SiluMulArgs a{};
  a.columns = to.dim[1];
  a.x_stride = from.stride[0] / in_bytes;
  a.y_stride = to.stride[0] / out_bytes;
  a.rows = static_cast<uint32_t>(to.dim[0]);
  a.first_row = c.first_row;
  a.biased = c.bias != 0 ? 1 : 0;
  a.x_format = from.format;
  a.y_format = to.format;
  emit<&detail::silu_mul_rows>(rec, spec, a);
}

}  // namespace tenon::cuda
