// These multiply many rows of x in int8 by int8 weights, through cuBLASLt's integer tensor cores. Recorded are
//   1. quantize_rows   x to int8 with a scale a row, normalized on the way, into a temporary
//   2. unpack_bytes    the packed weights in natural order, and their scales, into temporaries
//   3. gemm_int8       sums in int32, exact, into a temporary, kPieceRows rows at a time
//   4. scale_rows      y = sum * (scale of x * scale of the weights), with bias, residual or SiLU-multiply
// 3 and 4 take turns, since the sums of a whole prompt would be the largest activation of all. On Hopper one op does
// both where rows fill the multiprocessors (persistent_gemm.h). x, and y after SiLU-multiply, may be halves. The naive
// twin is the loop in int64 of tests/conformance/int8_rows_test.cc.
#pragma once

#include "integer_format.cuh"
#include "tenon/cuda/gemm.h"
#include "tenon/cuda/octet_row.cuh"
#include "tenon/cuda/packed_scheme.cuh"
#include "tenon/cuda/unpack.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda {

inline constexpr int64_t kPieceRows = 2048;

struct QuantizeRowsArgs {
  uint32_t k, padded, rows, normed;  // padded: a row of int8 has so many k
  float eps;
  tenon_format x_format;  // f32 or, without a norm, f16
  int64_t x_stride;       // elements
};
// Where there is no norm, kLive stands in the place of kNorm.
struct QuantizeRowsOperand {
  enum : uint32_t { kCodes, kScales, kX, kLive, kNorm, kCount };
};
struct QuantizeRowsPointers {
  const void* x;
  const float* norm;  // or nullptr
  const uint32_t* live;
  int8_t* codes;
  float* scales;
};
// A block takes a row. Rows past the live ones become zeros. It computes in float, as the CPU does, norm and all.
template <int8_rows::Int8Rows Schema, class X, bool kWide, bool kHeld>
__global__ void __launch_bounds__(kMatvecThreads)
    quantize_rows_kernel(const QuantizeRowsArgs a, const QuantizeRowsPointers p) {
  extern __shared__ uint4 held[];
  __shared__ float squares[kMatvecWarps];
  wait();
  const uint32_t row = blockIdx.x, warp = threadIdx.x / 32, octets = (a.k + 7) / 8;
  OctetRow<X, kWide, kHeld> x(static_cast<const X*>(p.x) + row * a.x_stride, row < *p.live ? a.k : 0, held);
  x.hold();
  float factor = 1;
  if (p.norm != nullptr) {
    float square = 0, v[8];
    for (uint32_t o = threadIdx.x; o < octets; o += blockDim.x) {
      x.load(o, v);
      for (const float f : v) square = fmaf(f, f, square);
    }
    square = warp_sum(square);
    if (lane_id() == 0) squares[warp] = square;
    __syncthreads();
    factor = norm_factor(squares, a.k, a.eps);
  }
  const auto load = [&](uint32_t octet, float(&v)[8]) {
    x.load(octet, v);
    if (p.norm != nullptr) x.normalize(octet, factor, p.norm, v);
  };
  uint32_t largest = 0;
  for (uint32_t o = threadIdx.x; o < octets; o += blockDim.x) {
    float v[8];
    load(o, v);
    for (const float f : v) {
      const bool out = int8_rows::is_outlier<Schema>(f) && isfinite(f);
      largest = max(largest, out ? 0 : __float_as_uint(f) & 0x7fffffff);
    }
  }
  const float found = detail::scale_of<Schema>(detail::find_largest(largest, warp), Schema::kLeastXScale);
  const float inverse = int8_rows::inverse_of<Schema>(found);
  if (threadIdx.x == 0) p.scales[row] = found;
  auto* to = reinterpret_cast<uint2*>(p.codes + size_t{row} * a.padded);
  for (uint32_t o = threadIdx.x; o < a.padded / 8; o += blockDim.x) {
    float v[8];
    load(o, v);
    to[o] = {detail::four_codes<Schema>({v[0], v[1], v[2], v[3]}, inverse),
             detail::four_codes<Schema>({v[4], v[5], v[6], v[7]}, inverse)};
  }
}
template <int8_rows::Int8Rows Schema>
void run_quantize_rows(const QuantizeRowsArgs& a, const Launch& l) {
  using Operand = QuantizeRowsOperand;
  QuantizeRowsPointers p{};
  p.x = l.ptr<const void>(Operand::kX);
  p.norm = a.normed != 0 ? l.ptr<const float>(Operand::kNorm) : nullptr;
  p.live = l.ptr<const uint32_t>(Operand::kLive);
  p.codes = l.ptr<int8_t>(Operand::kCodes);
  p.scales = l.ptr<float>(Operand::kScales);
  const auto launch = [&]<class X>(X) {
    with_octet_rows<X>({p.x, p.norm, a.k, a.x_stride}, [&]<bool kWide, bool kHeld>(OctetRow<X, kWide, kHeld>) {
      l(&quantize_rows_kernel<Schema, X, kWide, kHeld>,
        {.blocks = {a.rows}, .threads = {kMatvecThreads}, .shared_bytes = kHeld ? sizeof(X) * a.k : 0}, a, p);
    });
  };
  a.x_format == TENON_F16 ? launch(__half()) : launch(float());
}

struct ScaleRowsArgs {
  uint32_t columns;                                      // the product's
  uint32_t rows, first_row, silu, has_bias, has_addend;  // first_row: the live count has it so
  tenon_format y_format;                                 // f32 or, after SILU_MUL, f16
  uint32_t reserved;
  int64_t sums_stride, y_stride, addend_stride;  // elements
};
// kLive stands in the place of a bias and of an addend that the product does not have.
struct ScaleRowsOperand {
  enum : uint32_t { kY, kSums, kXScales, kScales, kLive, kBias, kAddend, kCount };
};
struct ScaleRowsPointers {
  void* y;
  const int32_t* sums;
  const float *x_scales, *scales;
  const uint32_t* live;
  const float *bias, *addend;  // or nullptr
};
// A thread takes V columns of a row of y.
template <class Y, int V>
__global__ void __launch_bounds__(256) scale_rows_kernel(const ScaleRowsArgs a, const ScaleRowsPointers p) {
  wait();
  const uint32_t row = blockIdx.y, column = (blockIdx.x * blockDim.x + threadIdx.x) * V;
  const uint32_t half = a.columns / 2, width = a.silu != 0 ? half : a.columns;
  if (a.first_row + row >= *p.live || column >= width) return;
  const float x_scale = p.x_scales[row];
  const auto numbers = [&](uint32_t c, float(&v)[V]) {
    const auto sums = detail::load_pack<int32_t, V>(p.sums + row * a.sums_stride + c);
    const auto scales = detail::load_pack<float, V>(p.scales + c);
    for (int e = 0; e < V; ++e) v[e] = static_cast<float>(sums.v[e]) * (x_scale * scales.v[e]);
    for (int e = 0; p.bias != nullptr && e < V; ++e) v[e] += p.bias[c + e];
  };
  float v[V];
  numbers(column, v);
  if (a.silu != 0) {
    float up[V];
    numbers(half + column, up);
    for (int e = 0; e < V; ++e) v[e] = v[e] / (1 + expf(-v[e])) * up[e];
  }
  if (p.addend != nullptr) {
    const auto addend = detail::load_pack<float, V>(p.addend + row * a.addend_stride + column);
    for (int e = 0; e < V; ++e) v[e] += addend.v[e];
  }
  detail::Pack<Y, V> out;
  for (int e = 0; e < V; ++e) out.v[e] = detail::narrow<Y>(v[e]);
  detail::store_pack<Y, V>(static_cast<Y*>(p.y) + row * a.y_stride + column, out);
}
template <class Y>
void run_scale_rows_to(const ScaleRowsArgs& a, const ScaleRowsPointers& p, const Launch& l) {
  const uint32_t width = a.silu != 0 ? a.columns / 2 : a.columns;
  const bool wide =
      detail::vectored({p.y, p.sums, p.scales, p.addend}, {width, a.sums_stride, a.y_stride, a.addend_stride});
  const uint32_t threads = wide ? width / 4 : width;
  l(wide ? &scale_rows_kernel<Y, 4> : &scale_rows_kernel<Y, 1>,
    {.blocks = {(threads + 255) / 256, a.rows}, .threads = {256}}, a, p);
}
inline void run_scale_rows(const ScaleRowsArgs& a, const Launch& l) {
  using Operand = ScaleRowsOperand;
  ScaleRowsPointers p{};
  p.y = l.ptr<void>(Operand::kY);
  p.sums = l.ptr<const int32_t>(Operand::kSums);
  p.x_scales = l.ptr<const float>(Operand::kXScales);
  p.scales = l.ptr<const float>(Operand::kScales);
  p.live = l.ptr<const uint32_t>(Operand::kLive);
  if (a.has_bias != 0) p.bias = l.ptr<const float>(Operand::kBias);
  if (a.has_addend != 0) p.addend = l.ptr<const float>(Operand::kAddend);
  a.y_format == TENON_F16 ? run_scale_rows_to<__half>(a, p, l) : run_scale_rows_to<float>(a, p, l);
}

// This records a product of a packed site: y = epilogue(prologue(x) w^T).
template <class F>
class IntegerGemmRecording {
 public:
  IntegerGemmRecording(const PackedSite& site, const tenon_linear_call& call, sdk::Recorder& rec)
      : site_(site), call_(call), rec_(rec), rows_(rec.describe(call.y).dim[0]) {
    GemmCall chains{};
    chains.pro = call.pro;
    chains.epi = call.epi;
    chains_ = detail::read_chains(chains);
    live_ = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
    padded_ = segments_of<F>(site.k) * F::kSegmentK;
    columns_ = UnpackedBytes::whole(site.map.columns);
  }

  void record() {
    quantize();
    weights_ = record_unpack_bytes<F>(site_, TENON_I8, call_.store, rec_);
    if (record_at_once()) return;
    const int64_t pieces = (rows_ + kPieceRows - 1) / kPieceRows, piece = (rows_ + pieces - 1) / pieces;
    const tenon_tid sums = rec_.temp(sdk::tensor(TENON_I32, {piece, columns_}));
    for (int64_t first = 0; first < rows_; first += piece) {
      const int64_t count = std::min(piece, rows_ - first);
      multiply(detail::row_slice(rec_, sums, 0, count), first, count);
      scale(detail::row_slice(rec_, sums, 0, count), first, count);
    }
  }

 private:
  // Sums in int32 that are written and read again cost so much that idle multiprocessors cost less.
  static constexpr double kLeastBusy = 0.7;
  bool record_at_once() {
    const detail::PersistentCall product{.x = codes_,
                                         .w = weights_.codes,
                                         .y = call_.y,
                                         .live = live_,
                                         .n = columns_,
                                         .silu = chains_.silu,
                                         .x_scales = x_scales_,
                                         .w_scales = weights_.scales,
                                         .bias = chains_.bias,
                                         .addend = chains_.addend,
                                         .name = "gemm_int8"};
    return detail::record_persistent(rec_, product, kLeastBusy);
  }

  void quantize() {
    codes_ = rec_.temp(sdk::tensor(TENON_I8, {rows_, padded_}));
    x_scales_ = rec_.temp(sdk::tensor(TENON_F32, {rows_}));
    using Operand = QuantizeRowsOperand;
    const std::vector<tenon_operand> operands =
        sdk::operands_by(Operand::kCount,
                         {{Operand::kCodes, codes_, TENON_WRITE},
                          {Operand::kScales, x_scales_, TENON_WRITE},
                          {Operand::kX, call_.x, TENON_READ},
                          {Operand::kLive, live_, TENON_READ}},
                         {live_, TENON_READ}, {{Operand::kNorm, chains_.norm_weight, TENON_READ}});
    sdk::OpSpec spec{.name = "quantize_rows", .operands = operands, .chunks = {}};
    const tenon_tensor x = rec_.describe(call_.x);
    const int64_t x_bytes = tenon_format_block(x.format).bytes;
    spec.cost.read[kCostPerRow] = static_cast<double>(x_bytes * site_.k);
    spec.cost.written[kCostPerRow] = static_cast<double>(padded_);
    QuantizeRowsArgs a{};
    a.k = site_.k;
    a.padded = static_cast<uint32_t>(padded_);
    a.rows = static_cast<uint32_t>(rows_);
    a.normed = chains_.norm ? 1 : 0;
    a.eps = chains_.eps;
    a.x_format = x.format;
    a.x_stride = x.stride[0] / x_bytes;
    emit<&run_quantize_rows<typename F::Schema>>(rec_, spec, a);
  }
  void multiply(tenon_tid sums, int64_t first, int64_t count) {
    GemmCall product{};
    product.w = weights_.codes;
    product.n = columns_;
    product.k = padded_;
    product.name = "gemm_int8";
    detail::ProductTensors tensors{};
    tensors.x = detail::row_slice(rec_, codes_, first, count);
    tensors.y = sums;
    tensors.share = static_cast<double>(count) / static_cast<double>(rows_);
    detail::record_product(rec_, product, tensors);
  }
  void scale(tenon_tid sums, int64_t first, int64_t count) {
    const tenon_tid y = detail::row_slice(rec_, call_.y, first, count),
                    x_scales = detail::row_slice(rec_, x_scales_, first, count),
                    addend = chains_.addend != 0 ? detail::row_slice(rec_, chains_.addend, first, count) : 0;
    using Operand = ScaleRowsOperand;
    const std::vector<tenon_operand> operands = sdk::operands_by(
        Operand::kCount,
        {{Operand::kY, y, TENON_WRITE},
         {Operand::kSums, sums, TENON_READ},
         {Operand::kXScales, x_scales, TENON_READ},
         {Operand::kScales, weights_.scales, TENON_READ},
         {Operand::kLive, live_, TENON_READ}},
        {live_, TENON_READ}, {{Operand::kBias, chains_.bias, TENON_READ}, {Operand::kAddend, addend, TENON_READ}});
    ScaleRowsArgs a{};
    a.columns = site_.map.columns;
    a.rows = static_cast<uint32_t>(count);
    a.first_row = static_cast<uint32_t>(first);
    a.sums_stride = columns_;
    a.silu = chains_.silu ? 1 : 0;
    a.has_bias = chains_.bias != 0 ? 1 : 0;
    a.has_addend = chains_.addend != 0 ? 1 : 0;
    const tenon_tensor to = rec_.describe(call_.y);
    const int64_t y_bytes = tenon_format_block(to.format).bytes;
    a.y_format = to.format;
    a.y_stride = to.stride[0] / y_bytes;
    if (a.has_addend != 0) a.addend_stride = rec_.floats_of_row(chains_.addend);
    sdk::OpSpec spec{.name = "scale_rows", .operands = operands, .chunks = {}};
    const double share = static_cast<double>(count) / static_cast<double>(rows_);
    spec.cost.read[kCostPerRow] = share * 4 * static_cast<double>(columns_);
    spec.cost.written[kCostPerRow] = share * static_cast<double>(y_bytes * to.dim[1]);
    emit<&run_scale_rows>(rec_, spec, a);
  }

  const PackedSite& site_;
  const tenon_linear_call& call_;
  sdk::Recorder& rec_;
  int64_t rows_, padded_ = 0, columns_ = 0;
  detail::GemmChains chains_;
  tenon_tid live_ = 0, codes_ = 0, x_scales_ = 0;
  UnpackedBytes weights_{};
};

}  // namespace tenon::cuda
