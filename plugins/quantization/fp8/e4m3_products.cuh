// These multiply many rows of x as e4m3 codes by weights as e4m3 codes, through cuBLASLt's e4m3 tensor cores of Hopper.
// Each row of x and of the weights has a scale; sums are in f32. Recorded are
//   1. round_codes     x to codes, normalized on the way, into a temporary; row_scales where x is codes already
//   2. unpack_bytes    the packed weights as rows of codes, into a temporary; one op for each part of the site
//   3. gemm_e4m3       y = sums * (scale of x's row * scale of the weights' row), with the residual; one op a part
// Where SILU_MUL, a bias, or a y whose rows cuBLASLt does not write follow, 3 leaves a piece of kSiluPieceRows rows in
// a temporary, in f16 for SILU_MUL and else in f32, and in turn with it
//   4. silu_mul_rows, silu_codes where y is to be codes, or add_to_sums    makes y of that.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "e4m3_rows.cuh"
#include "scheme.h"
#include "tenon/cuda/gemm.h"
#include "tenon/cuda/unpack.cuh"

namespace tenon::fp8 {

// cuBLASLt multiplies e4m3 where n and k are multiples of this.
inline constexpr int64_t kWhole = cuda::UnpackedBytes::kWhole;

inline int64_t whole(int64_t n) {
  return cuda::UnpackedBytes::whole(n);
}

struct CodedRows {
  int64_t rows, k, stride;  // k has whole segments; stride is in bytes
};
// Says whether cuBLASLt multiplies such codes of x for all parts; false without a GPU.
inline bool has_products(const Products& products, const CodedRows& x) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return false;
  for (const Products::Part& part : products.parts) {
    if (products.parts.size() > 1 && part.columns % kWhole != 0) return false;  // they lie side by side in y
    cuda::detail::Product p{};
    p.rows = x.rows;
    p.n = p.y_stride = whole(part.columns);
    p.k = x.k;
    p.x_stride = x.stride;
    p.in = CUDA_R_8F_E4M3;
    for (const cudaDataType to : {CUDA_R_32F, CUDA_R_16F}) {
      p.out = to;
      if (!cuda::detail::has_algorithm(p)) return false;
    }
  }
  return true;
}

// This is a part of a site, as it is packed in format F, and its stores: codes and scales.
struct CodedPart {
  const cuda::PackedSite* site;
  const tenon_tid* store;
};

template <class F>
class E4m3Recording {
 public:
  // `scales` is f32 (parts) of x, or 0: each row has a scale.
  E4m3Recording(std::span<const CodedPart> parts, tenon_tid scales, const tenon_linear_call& call, sdk::Recorder& rec)
      : parts_(parts), static_scales_(scales), call_(call), rec_(rec), rows_(rec.describe(call.y).dim[0]) {
    cuda::GemmCall chains{};
    chains.pro = call.pro;
    chains.epi = call.epi;
    chains_ = cuda::detail::read_chains(chains);
    live_ = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
    k_ = parts[0].site->k;
    padded_ = int64_t{cuda::segments_of<F>(parts[0].site->k)} * F::kSegmentK;
    for (const CodedPart& part : parts) columns_ += part.site->map.columns;
  }

  void record() {
    round();
    for (const CodedPart& part : parts_) {
      weights_.push_back(cuda::record_unpack_bytes<F>(*part.site, TENON_F8E4M3, part.store, rec_));
    }
    if (writes_y()) return multiply({call_.y, chains_.addend, 0, rows_});
    const int64_t pieces = (rows_ + cuda::kSiluPieceRows - 1) / cuda::kSiluPieceRows,
                  piece = whole((rows_ + pieces - 1) / pieces);
    const tenon_tid sums = rec_.temp(sdk::tensor(chains_.silu ? TENON_F16 : TENON_F32, {piece, whole(columns_)}));
    for (int64_t first = 0; first < rows_; first += piece) {
      const int64_t count = std::min(piece, rows_ - first);
      const tenon_tid some = cuda::detail::row_slice(rec_, sums, 0, count);
      multiply({some, 0, first, count});
      chains_.silu ? silu_mul(some, first, count) : add_to_sums(some, first, count);
    }
  }

 private:
  struct Rows {
    tenon_tid y, addend;  // f32 or f16 (count, columns or more); addend: 0, none
    int64_t first, count;
  };

  double share_of(int64_t count) const { return static_cast<double>(count) / static_cast<double>(rows_); }
  bool is_whole(tenon_tid t) const { return rec_.describe(t).stride[0] == columns_ * int64_t{sizeof(float)}; }
  // Says whether the product writes y itself: cuBLASLt adds no bias in f32, and rows have to lie at whole 16 bytes.
  bool writes_y() const {
    return !chains_.silu && chains_.bias == 0 && columns_ % kWhole == 0 && is_whole(call_.y) &&
           (chains_.addend == 0 || is_whole(chains_.addend));
  }

  void round() {
    if (rec_.describe(call_.x).format == TENON_F8E4M3) return take_codes();
    const auto n = static_cast<int64_t>(parts_.size());
    const tenon_tensor x = rec_.describe(call_.x);
    codes_ = rec_.temp(sdk::tensor(TENON_F8E4M3, {rows_, n * padded_}));
    scales_ = rec_.temp(sdk::tensor(TENON_F32, {n, whole(rows_)}));
    RoundCodesArgs a{};
    a.k = static_cast<uint32_t>(k_);
    a.padded = static_cast<uint32_t>(padded_);
    a.rows = static_cast<uint32_t>(rows_);
    a.scale_rows = static_cast<uint32_t>(whole(rows_));
    a.parts = static_cast<uint32_t>(n);
    a.has_norm = chains_.norm ? 1 : 0;
    a.has_scales = static_scales_ != 0 ? 1 : 0;
    a.eps = chains_.eps;
    a.x_format = x.format;
    const int64_t x_bytes = tenon_format_block(x.format).bytes;
    a.x_stride = x.stride[0] / x_bytes;
    using Operand = RoundCodesOperand;
    const std::vector<tenon_operand> operands = sdk::operands_by(
        Operand::kCount,
        {{Operand::kCodes, codes_, TENON_WRITE},
         {Operand::kScales, scales_, TENON_WRITE},
         {Operand::kX, call_.x, TENON_READ},
         {Operand::kLive, live_, TENON_READ}},
        {live_, TENON_READ},
        {{Operand::kNorm, chains_.norm_weight, TENON_READ}, {Operand::kXScales, static_scales_, TENON_READ}});
    sdk::OpSpec spec{.name = "round_codes", .operands = operands, .chunks = {}};
    spec.cost.read[cuda::kCostPerRow] = static_cast<double>(x_bytes * k_);
    spec.cost.written[cuda::kCostPerRow] = static_cast<double>(n * padded_);
    cuda::emit<&run_round_codes>(rec_, spec, a);
  }

  void take_codes() {
    codes_ = call_.x;
    scales_ = rec_.temp(sdk::tensor(TENON_F32, {1, whole(rows_)}));
    const tenon_tensor x = rec_.describe(codes_);
    const RowScalesArgs a{static_cast<uint32_t>(rows_), 0, x.stride[0], k_};
    const std::vector<tenon_operand> operands = sdk::operands_by(
        RowScalesOperand::kCount,
        {{RowScalesOperand::kScales, scales_, TENON_WRITE}, {RowScalesOperand::kX, codes_, TENON_READ}});
    sdk::OpSpec spec{.name = "row_scales", .operands = operands, .chunks = {}};
    spec.cost.read[cuda::kCostPerRow] = spec.cost.written[cuda::kCostPerRow] = sizeof(float);
    cuda::emit<&run_row_scales>(rec_, spec, a);
  }

  // Makes the products of all parts, each into its columns.
  void multiply(const Rows& r) {
    int64_t column = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int64_t columns = parts_[i].site->map.columns, n = whole(columns);
      cuda::GemmCall product{};
      product.w = weights_[i].codes;
      product.n = n;
      product.k = padded_;
      product.name = "gemm_e4m3";
      cuda::detail::ProductTensors tensors{};
      tensors.x = codes_of(i, r);
      tensors.y = columns_of(r.y, column, n);
      tensors.addend = r.addend != 0 ? columns_of(r.addend, column, n) : 0;
      tensors.share = share_of(r.count);
      tensors.x_scales = scales_of(i, r);
      tensors.w_scales = weights_[i].scales;
      cuda::detail::record_product(rec_, product, tensors);
      column += columns;
    }
  }
  tenon_tid codes_of(size_t part, const Rows& r) {
    tenon_tensor t = rec_.describe(codes_);
    t.dim[0] = r.count;
    t.dim[1] = padded_;
    return rec_.slice(codes_, t, static_cast<uint64_t>(r.first * t.stride[0] + static_cast<int64_t>(part) * padded_));
  }
  tenon_tid scales_of(size_t part, const Rows& r) {
    const int64_t first = static_cast<int64_t>(part) * whole(rows_) + r.first, count = r.count;
    return rec_.slice(scales_, sdk::tensor(TENON_F32, {count}), static_cast<uint64_t>(first) * sizeof(float));
  }
  tenon_tid columns_of(tenon_tid of, int64_t first, int64_t n) {
    tenon_tensor t = rec_.describe(of);
    if (first == 0 && t.dim[1] == n) return of;
    t.dim[1] = n;
    return rec_.slice(of, t, static_cast<uint64_t>(first * tenon_format_block(t.format).bytes));
  }

  void silu_mul(tenon_tid sums, int64_t first, int64_t count) {
    const tenon_tid y = cuda::detail::row_slice(rec_, call_.y, first, count);
    if (rec_.describe(y).format == TENON_F8E4M3) return silu_codes(sums, y, first);
    cuda::record_silu_mul_rows(rec_, {sums, chains_.bias, y, live_, static_cast<uint32_t>(first), share_of(count)});
  }
  void silu_codes(tenon_tid sums, tenon_tid y, int64_t first) {
    const tenon_tensor from = rec_.describe(sums), to = rec_.describe(y);
    SiluCodesArgs a{};
    a.columns = static_cast<uint32_t>(columns_ / 2);
    a.rows = static_cast<uint32_t>(to.dim[0]);
    a.first_row = static_cast<uint32_t>(first);
    a.has_bias = chains_.bias != 0 ? 1 : 0;
    a.sums_stride = from.stride[0] / tenon_format_block(from.format).bytes;
    a.y_stride = to.stride[0];
    using Operand = SiluCodesOperand;
    const std::vector<tenon_operand> operands = sdk::operands_by(
        Operand::kCount,
        {{Operand::kY, y, TENON_WRITE}, {Operand::kSums, sums, TENON_READ}, {Operand::kLive, live_, TENON_READ}},
        {live_, TENON_READ}, {{Operand::kBias, chains_.bias, TENON_READ}});
    sdk::OpSpec spec{.name = "silu_codes", .operands = operands, .chunks = {}};
    const double n = share_of(to.dim[0]) * static_cast<double>(a.columns);
    spec.cost.read[cuda::kCostPerRow] = 2 * n * static_cast<double>(tenon_format_block(from.format).bytes);
    spec.cost.written[cuda::kCostPerRow] = n;
    spec.cost.flops[cuda::kCostPerRow] = 4 * n;
    cuda::emit<&run_silu_codes>(rec_, spec, a);
  }

  void add_to_sums(tenon_tid sums, int64_t first, int64_t count) {
    const tenon_tid y = cuda::detail::row_slice(rec_, call_.y, first, count);
    AddToSumsArgs a{};
    a.rows = static_cast<uint32_t>(count);
    a.first_row = static_cast<uint32_t>(first);
    a.columns = static_cast<uint32_t>(columns_);
    a.has_bias = chains_.bias != 0 ? 1 : 0;
    a.has_addend = chains_.addend != 0 ? 1 : 0;
    a.y_stride = rec_.floats_of_row(y);
    a.sums_stride = rec_.floats_of_row(sums);
    tenon_tid addend = 0;
    if (chains_.addend != 0) {
      a.addend_stride = rec_.floats_of_row(chains_.addend);
      addend = cuda::detail::row_slice(rec_, chains_.addend, first, count);
    }
    using Operand = AddToSumsOperand;
    const std::vector<tenon_operand> operands = sdk::operands_by(
        Operand::kCount,
        {{Operand::kY, y, TENON_WRITE}, {Operand::kSums, sums, TENON_READ}, {Operand::kLive, live_, TENON_READ}},
        {live_, TENON_READ}, {{Operand::kBias, chains_.bias, TENON_READ}, {Operand::kAddend, addend, TENON_READ}});
    sdk::OpSpec spec{.name = "add_to_sums", .operands = operands, .chunks = {}};
    const double bytes = share_of(count) * sizeof(float) * static_cast<double>(columns_);
    spec.cost.read[cuda::kCostPerRow] = bytes * (chains_.addend != 0 ? 2 : 1);
    spec.cost.written[cuda::kCostPerRow] = bytes;
    cuda::emit<&run_add_to_sums>(rec_, spec, a);
  }

  std::span<const CodedPart> parts_;
  tenon_tid static_scales_;
  const tenon_linear_call& call_;
  sdk::Recorder& rec_;
  int64_t rows_, k_ = 0, padded_ = 0, columns_ = 0;
  cuda::detail::GemmChains chains_;
  tenon_tid live_ = 0, codes_ = 0, scales_ = 0;
  std::vector<cuda::UnpackedBytes> weights_;  // by part
};

}  // namespace tenon::fp8
