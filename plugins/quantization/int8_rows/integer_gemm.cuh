// Products of many rows of x in int8 with int8 weights, through cuBLASLt's integer tensor cores. Recorded are
//   1. quantize_rows   x to int8 with a scale a row, normalized on the way, into a temporary
//   2. unpack_int8     the packed weights in natural order, into a temporary
//   3. gemm_int8       sums in int32, exact, into a temporary, kPieceRows rows at a time
//   4. scale_rows      y = sum * (scale of x * scale of the weights), with bias, residual or SiLU-multiply
// 3 and 4 take turns, since the sums of a whole prompt would be the largest activation of all. The naive twin is the loop in
// int64 of tests/conformance/int8_rows_test.cc.
#pragma once

#include <cublasLt.h>

#include <map>
#include <mutex>
#include <tuple>

#include "integer_format.cuh"
#include "tenon/cuda/gemm.h"
#include "tenon/cuda/packed_scheme.cuh"
#include "tenon/cuda/unpack.cuh"

namespace tenon::cuda {

inline constexpr int64_t kPieceRows = 2048;
inline constexpr uint32_t kWholeColumns = 16;  // of y that cuBLASLt gets: its rows of 16 bytes

struct QuantizeRowsArgs {
  uint32_t k, padded, rows, normed;  // padded: k of a row of int8
  float eps;
  uint32_t padding;
  int64_t x_stride;
};
struct QuantizeRowsOperand {
  enum : uint32_t { kCodes, kScales, kX, kLive, kNorm };
};
// A block takes a row. Rows past the live ones become zeros. In float, as the CPU does it, norm and all.
template <class Schema>
__global__ void __launch_bounds__(kMatvecThreads)
    quantize_rows_kernel(QuantizeRowsArgs a, const float* x, const float* norm, const uint32_t* live, int8_t* codes,
                         float* scales) {
  __shared__ float squares[kMatvecWarps];
  wait();
  const uint32_t row = blockIdx.x, warp = threadIdx.x / 32;
  const bool padding = row >= *live;
  x += row * a.x_stride;
  float factor = 1;
  if (norm != nullptr) {
    float square = 0;
    for (uint32_t i = threadIdx.x; i < a.k && !padding; i += blockDim.x) square = fmaf(x[i], x[i], square);
    square = detail::warp_sum(square);
    if (lane_id() == 0) squares[warp] = square;
    __syncthreads();
    factor = norm_factor(squares, a.k, a.eps);
  }
  const auto value = [&](uint32_t i) {
    if (i >= a.k || padding) return 0.0F;
    return norm != nullptr ? x[i] * factor * norm[i] : x[i];
  };
  uint32_t largest = 0;
  for (uint32_t i = threadIdx.x; i < a.k; i += blockDim.x) {
    const float v = value(i);
    const bool out = int8_rows::is_outlier<Schema>(v) && isfinite(v);
    largest = max(largest, out ? 0 : __float_as_uint(v) & 0x7fffffff);
  }
  const float found = detail::scale_of<Schema>(detail::find_largest(largest, warp), false);
  if (threadIdx.x == 0) scales[row] = found;
  auto* to = reinterpret_cast<uint32_t*>(codes + size_t{row} * a.padded);
  for (uint32_t i = 4 * threadIdx.x; i < a.padded; i += 4 * blockDim.x) {
    const float v[4] = {value(i), value(i + 1), value(i + 2), value(i + 3)};
    to[i / 4] = detail::four_codes<Schema>(v, int8_rows::inverse_of(found));
  }
}
template <class Schema>
void run_quantize_rows(const QuantizeRowsArgs& a, const Launch& l) {
  using Operand = QuantizeRowsOperand;
  l(&quantize_rows_kernel<Schema>, {.blocks = {a.rows}, .threads = {kMatvecThreads}}, a,
    l.ptr<const float>(Operand::kX), a.normed != 0 ? l.ptr<const float>(Operand::kNorm) : nullptr,
    l.ptr<const uint32_t>(Operand::kLive), l.ptr<int8_t>(Operand::kCodes), l.ptr<float>(Operand::kScales));
}

struct UnpackInt8Args {
  TileMap map;
  uint32_t k, columns;  // of the result, whole kWholeColumns
};
struct UnpackInt8Operand {
  enum : uint32_t { kTo, kWeights };
};
// A block takes a column of y, a row of weights.
template <PackedFormat F>
__global__ void unpack_int8_kernel(UnpackInt8Args a, const uint8_t* weights, int8_t* to) {
  wait();
  const uint32_t column = blockIdx.x, padded = segments_of<F>(a.k) * F::kSegmentK;
  const bool there = column < a.map.columns;
  const uint32_t row = there ? a.map.packed_row(column) : 0;
  auto* words = reinterpret_cast<uint32_t*>(to + size_t{column} * padded);
  for (uint32_t k = 4 * threadIdx.x; k < padded; k += 4 * blockDim.x) {
    const uint8_t* quad = weights + segment_offset<F>(a.k, row, k) + F::quad_offset(row % kTileRows, k);
    words[k / 4] = there ? *reinterpret_cast<const uint32_t*>(quad) : 0;
  }
}
template <PackedFormat F>
void run_unpack_int8(const UnpackInt8Args& a, const Launch& l) {
  using Operand = UnpackInt8Operand;
  l(&unpack_int8_kernel<F>, {.blocks = {a.columns}, .threads = {256}}, a, l.ptr<const uint8_t>(Operand::kWeights),
    l.ptr<int8_t>(Operand::kTo));
}

// y (rows, n) int32 = x (rows, k) w (n, k)^T, both int8 and dense.
struct IntegerProduct {
  int64_t rows, n, k;
};
struct IntegerGemmOperand {
  enum : uint32_t { kY, kX, kW };
};

namespace detail {

// A product in cuBLASLt's words: column-major, so y^T = w x^T with w transposed.
class LtIntegerProduct {
 public:
  explicit LtIntegerProduct(const IntegerProduct& p) {
    TENON_CUBLASLT_CHECK(cublasLtMatmulDescInit(&op_, CUBLAS_COMPUTE_32I, CUDA_R_32I));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    TENON_CUBLASLT_CHECK(
        cublasLtMatmulDescSetAttribute(&op_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    const auto rows = static_cast<uint64_t>(p.rows), n = static_cast<uint64_t>(p.n), k = static_cast<uint64_t>(p.k);
    TENON_CUBLASLT_CHECK(cublasLtMatrixLayoutInit(&w_, CUDA_R_8I, k, n, p.k));
    TENON_CUBLASLT_CHECK(cublasLtMatrixLayoutInit(&x_, CUDA_R_8I, k, rows, p.k));
    TENON_CUBLASLT_CHECK(cublasLtMatrixLayoutInit(&y_, CUDA_R_32I, n, rows, p.n));
  }
  // Returns cuBLASLt's best guess.
  Algorithm proposal(cublasLtHandle_t handle) {
    cublasLtMatmulPreferenceOpaque_t preference;
    TENON_CUBLASLT_CHECK(cublasLtMatmulPreferenceInit(&preference));
    const uint64_t most = kGemmWorkspaceBytes;
    TENON_CUBLASLT_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                              &most, sizeof(most)));
    cublasLtMatmulHeuristicResult_t result{};
    int n = 0;
    TENON_CUBLASLT_CHECK(cublasLtMatmulAlgoGetHeuristic(handle, &op_, &w_, &x_, &y_, &y_, &preference, 1, &result, &n));
    if (n == 0) throw sdk::Failed("cuBLASLt has no algorithm for a product of int8");
    return {result.algo};
  }
  void run(cublasLtHandle_t handle, const Algorithm& algorithm, const Launch& l) {
    using Operand = IntegerGemmOperand;
    const int32_t alpha = 1, beta = 0;
    auto* y = l.ptr<int32_t>(Operand::kY);
    TENON_CUBLASLT_CHECK(cublasLtMatmul(handle, &op_, &alpha, l.ptr<const void>(Operand::kW), &w_,
                                        l.ptr<const void>(Operand::kX), &x_, &beta, y, &y_, y, &y_, &algorithm.raw,
                                        l.scratch(), kGemmWorkspaceBytes, l.stream()));
  }

 private:
  cublasLtMatmulDescOpaque_t op_;
  cublasLtMatrixLayoutOpaque_t w_, x_, y_;
};

// One GPU's handle and choices, for the process' life. Call under its mutex.
struct IntegerGemms {
  cublasLtHandle_t handle = nullptr;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Algorithm> chosen;

  IntegerGemms() {
    // A first launch may be inside a capture, where making a handle is allowed only so.
    auto mode = cudaStreamCaptureModeRelaxed;
    TENON_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    TENON_CUBLASLT_CHECK(cublasLtCreate(&handle));
    TENON_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  }
};

}  // namespace detail

inline void run_integer_gemm(const IntegerProduct& p, const Launch& l) {
  static std::mutex mutex;
  static auto& gemms = *new std::map<int, detail::IntegerGemms>;  // never destroyed: the driver may be gone already
  const std::lock_guard lock(mutex);
  int device = 0;
  TENON_CUDA_CHECK(cudaGetDevice(&device));
  detail::IntegerGemms& own = gemms[device];
  detail::LtIntegerProduct product(p);
  const std::tuple key(p.rows, p.n, p.k);
  auto found = own.chosen.find(key);
  if (found == own.chosen.end()) found = own.chosen.emplace(key, product.proposal(own.handle)).first;
  product.run(own.handle, found->second, l);
}

struct ScaleRowsArgs {
  TileMap map;
  uint32_t rows, first_row, sums_stride, silu, has_bias, has_addend;  // first_row: as the live count has it
  int64_t y_stride, addend_stride;
};
// kBias and kAddend are there as far as the product has them.
struct ScaleRowsOperand {
  enum : uint32_t { kY, kSums, kXScales, kScales, kLive, kBias, kAddend };
};
struct ScaleRowsPointers {
  float* y;
  const int32_t* sums;
  const float *x_scales, *scales;
  const uint32_t* live;
  const float *bias, *addend;  // or nullptr
};
// A thread takes a column of a row of y.
__global__ void __launch_bounds__(256) inline scale_rows_kernel(const ScaleRowsArgs a, const ScaleRowsPointers p) {
  wait();
  const uint32_t row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t half = a.map.columns / 2, width = a.silu != 0 ? half : a.map.columns;
  if (a.first_row + row >= *p.live || column >= width) return;
  const auto number = [&](uint32_t c) {
    const float scale = p.x_scales[row] * p.scales[a.map.packed_row(c)];
    const float v = static_cast<float>(p.sums[size_t{row} * a.sums_stride + c]) * scale;
    return p.bias != nullptr ? v + p.bias[c] : v;
  };
  float v = number(column);
  if (a.silu != 0) v = v / (1 + expf(-v)) * number(half + column);
  if (p.addend != nullptr) v += p.addend[row * a.addend_stride + column];
  p.y[row * a.y_stride + column] = v;
}
inline void run_scale_rows(const ScaleRowsArgs& a, const Launch& l) {
  using Operand = ScaleRowsOperand;
  ScaleRowsPointers p{l.ptr<float>(Operand::kY),
                      l.ptr<const int32_t>(Operand::kSums),
                      l.ptr<const float>(Operand::kXScales),
                      l.ptr<const float>(Operand::kScales),
                      l.ptr<const uint32_t>(Operand::kLive),
                      nullptr,
                      nullptr};
  if (a.has_bias != 0) p.bias = l.ptr<const float>(Operand::kBias);
  if (a.has_addend != 0) p.addend = l.ptr<const float>(a.has_bias != 0 ? Operand::kAddend : Operand::kBias);
  const uint32_t width = a.silu != 0 ? a.map.columns / 2 : a.map.columns;
  l(&scale_rows_kernel, {.blocks = {(width + 255) / 256, a.rows}, .threads = {256}}, a, p);
}

// A product of a packed site: y = epilogue(prologue(x) w^T).
template <class F>
class IntegerGemmRecording {
 public:
  IntegerGemmRecording(const PackedSite& site, const tenon_linear_call& call, sdk::Recorder& rec)
      : site_(site), call_(call), rec_(rec), rows_(rec.describe(call.y).dim[0]) {
    chains_ = detail::read_chains({.x = 0,
                                   .w = 0,
                                   .y = 0,
                                   .row_live = 0,
                                   .w_format = 0,
                                   .n = 0,
                                   .k = 0,
                                   .pro = call.pro,
                                   .epi = call.epi,
                                   .name = ""});
    live_ = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
    padded_ = segments_of<F>(site.k) * F::kSegmentK;
    columns_ = (site.map.columns + kWholeColumns - 1) / kWholeColumns * kWholeColumns;
  }

  void record() {
    quantize();
    unpack();
    const int64_t pieces = (rows_ + kPieceRows - 1) / kPieceRows, piece = (rows_ + pieces - 1) / pieces;
    const tenon_tid sums = rec_.temp(sdk::tensor(TENON_I32, {piece, columns_}));
    for (int64_t first = 0; first < rows_; first += piece) {
      const int64_t count = std::min(piece, rows_ - first);
      multiply(detail::row_slice(rec_, sums, 0, count), first, count);
      scale(detail::row_slice(rec_, sums, 0, count), first, count);
    }
  }

 private:
  void quantize() {
    codes_ = rec_.temp(sdk::tensor(TENON_I8, {rows_, padded_}));
    x_scales_ = rec_.temp(sdk::tensor(TENON_F32, {rows_}));
    // In the order of QuantizeRowsOperand.
    std::vector<tenon_operand> operands = {
        {codes_, TENON_WRITE}, {x_scales_, TENON_WRITE}, {call_.x, TENON_READ}, {live_, TENON_READ}};
    if (chains_.norm) operands.push_back({chains_.norm_weight, TENON_READ});
    sdk::OpSpec spec{.name = "quantize_rows", .operands = operands, .chunks = {}};
    spec.cost.read[kCostPerRow] = 4.0 * site_.k;
    spec.cost.written[kCostPerRow] = static_cast<double>(padded_);
    QuantizeRowsArgs a{};
    a.k = site_.k;
    a.padded = static_cast<uint32_t>(padded_);
    a.rows = static_cast<uint32_t>(rows_);
    a.normed = chains_.norm ? 1 : 0;
    a.eps = chains_.eps;
    a.x_stride = rec_.describe(call_.x).stride[0] / 4;
    emit<&run_quantize_rows<typename F::Schema>>(rec_, spec, a);
  }
  void unpack() {
    weights_ = rec_.temp(sdk::tensor(TENON_I8, {columns_, padded_}));
    const tenon_operand operands[] = {{weights_, TENON_WRITE}, {call_.store[0], TENON_READ}};
    sdk::OpSpec spec{.name = "unpack_int8", .operands = operands, .chunks = {}};
    spec.cost.read[kFixedCost] = spec.cost.written[kFixedCost] = static_cast<double>(site_.weight_bytes);
    emit<&run_unpack_int8<F>>(rec_, spec, UnpackInt8Args{site_.map, site_.k, static_cast<uint32_t>(columns_)});
  }
  void multiply(tenon_tid sums, int64_t first, int64_t count) {
    const tenon_operand operands[] = {
        {sums, TENON_WRITE}, {detail::row_slice(rec_, codes_, first, count), TENON_READ}, {weights_, TENON_READ}};
    sdk::OpSpec spec{
        .name = "gemm_int8", .operands = operands, .chunks = {}, .scratch_bytes = detail::kGemmWorkspaceBytes};
    const double share = static_cast<double>(count) / static_cast<double>(rows_);
    const auto n = static_cast<double>(columns_), k = static_cast<double>(padded_);
    spec.cost.read[kFixedCost] = n * k;
    spec.cost.read[kCostPerRow] = share * k;
    spec.cost.written[kCostPerRow] = share * 4 * n;
    spec.cost.flops[kCostPerRow] = share * 2 * n * k;
    emit<&run_integer_gemm>(rec_, spec, IntegerProduct{count, columns_, padded_}, TENON_OP_FOREIGN);
  }
  void scale(tenon_tid sums, int64_t first, int64_t count) {
    const tenon_tid y = detail::row_slice(rec_, call_.y, first, count);
    // In the order of ScaleRowsOperand.
    std::vector<tenon_operand> operands = {{y, TENON_WRITE},
                                           {sums, TENON_READ},
                                           {detail::row_slice(rec_, x_scales_, first, count), TENON_READ},
                                           {call_.store[1], TENON_READ},
                                           {live_, TENON_READ}};
    ScaleRowsArgs a{};
    a.map = site_.map;
    a.rows = static_cast<uint32_t>(count);
    a.first_row = static_cast<uint32_t>(first);
    a.sums_stride = static_cast<uint32_t>(columns_);
    a.silu = chains_.silu ? 1 : 0;
    a.has_bias = chains_.bias != 0 ? 1 : 0;
    a.has_addend = chains_.addend != 0 ? 1 : 0;
    a.y_stride = rec_.describe(call_.y).stride[0] / 4;
    if (a.has_bias != 0) operands.push_back({chains_.bias, TENON_READ});
    if (a.has_addend != 0) {
      a.addend_stride = rec_.describe(chains_.addend).stride[0] / 4;
      operands.push_back({detail::row_slice(rec_, chains_.addend, first, count), TENON_READ});
    }
    sdk::OpSpec spec{.name = "scale_rows", .operands = operands, .chunks = {}};
    const double share = static_cast<double>(count) / static_cast<double>(rows_);
    spec.cost.read[kCostPerRow] = share * 4 * static_cast<double>(columns_);
    spec.cost.written[kCostPerRow] = share * 4 * static_cast<double>(site_.map.columns);
    emit<&run_scale_rows>(rec_, spec, a);
  }

  const PackedSite& site_;
  const tenon_linear_call& call_;
  sdk::Recorder& rec_;
  int64_t rows_, padded_ = 0, columns_ = 0;
  detail::GemmChains chains_;
  tenon_tid live_ = 0, codes_ = 0, x_scales_ = 0, weights_ = 0;
};

}  // namespace tenon::cuda
