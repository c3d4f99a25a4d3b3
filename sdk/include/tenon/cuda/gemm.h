// This multiplies many rows (prefill) through cuBLASLt, with what stands around that, for schemes whose weights are, or
// have just been made, dense. The plugin links the SDK's library for them: tenon_add_plugin(... LIBRARIES tenon::gemm).
//
// Recorded are up to three kinds of op:
//   1. x to the weights' type, normalized on the way (gemm_rows.cuh), into a temporary. f16 saturates at 65504. Not where
//      x has that type already and there is no norm.
//   2. the product, f32 sums, with bias and residual in its epilogue (gemm_tuning.h: how the algorithm is chosen).
//   3. for SILU_MUL: bias and silu(gate) * up. The product then goes to a temporary in the weights' type, in pieces of
//      kSiluPieceRows rows, since for a whole prompt it would be the largest activation of all.
//      Where halves come out, there is no bias, and rows fill the multiprocessors, one op does both on Hopper
//      (persistent_gemm.h).
// f32 weights are multiplied in f32, without TF32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/cuda/gemm_rows.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/persistent_gemm.h"
#include "tenon/cuda/product.h"
#include "tenon/sdk/fop.h"

namespace tenon::cuda {

constexpr int64_t kSiluPieceRows = 2048;

// A call computes y = epilogue(prologue(x) w^T) for bounds.rows rows; those from row_live[0] on come out as anything.
struct GemmCall {
  tenon_tid x;            // (rows, k) f32 or, without a norm, w_format; rows may be strided
  tenon_tid w;            // (n, k) row-major, dense, w_format
  tenon_tid y;            // (rows, n) f32, or (rows, n / 2) f32 or w_format after SILU_MUL; rows may be strided
  tenon_tid row_live;     // u32; 0: TENON_STEP_LIVE's first
  tenon_format w_format;  // TENON_F16, TENON_BF16 or TENON_F32
  int64_t n, k;
  const tenon_chain* pro;  // nothing or RMSNORM
  const tenon_chain* epi;  // [BIAS] [ADD or SILU_MUL]
  const char* name;        // the product's op gets this name
};

namespace detail {

// A product has these operands. From kXScales on kX stands in the place of those that Product does not have.
struct GemmOperand {
  enum : uint32_t { kX, kW, kY, kXScales, kWScales, kBias, kAddend, kCount };
};
inline ProductPointers product_pointers(const Product& p, const Launch& l) {
  using Operand = GemmOperand;
  ProductPointers at{};
  at.x = l.ptr<const void>(Operand::kX);
  at.w = l.ptr<const void>(Operand::kW);
  at.y = l.ptr<void>(Operand::kY);
  if (p.scaled()) {
    at.x_scales = l.ptr<const float>(Operand::kXScales);
    at.w_scales = l.ptr<const float>(Operand::kWScales);
  }
  if (p.biased != 0) at.bias = l.ptr<const float>(Operand::kBias);
  if (p.addend_stride != 0) at.addend = l.ptr<const float>(Operand::kAddend);
  at.workspace = l.scratch();
  return at;
}
inline void gemm(const Product& p, const Launch& l) {
  run_product(p, product_pointers(p, l), l.stream());
}

struct GemmChains {
  bool norm = false, silu = false;
  tenon_tid norm_weight = 0, bias = 0, addend = 0;
  float eps = 0;
};
inline GemmChains read_chains(const GemmCall& call) {
  GemmChains c;
  const auto refuse = [](const char* where, const tenon_fop& op) {
    throw sdk::Failed(std::string("record_gemm cannot take op ") + std::to_string(op.id) + " at its place in the " +
                      where + "; it takes RMSNORM before, and [BIAS] [ADD or SILU_MUL] after the product");
  };
  for (const tenon_fop& op : sdk::ops_of(call.pro)) {
    if (op.id != TENON_F_RMSNORM || c.norm) refuse("prologue", op);
    c.norm = true;
    c.norm_weight = sdk::RmsNormOp(op).weight;
    c.eps = sdk::RmsNormOp(op).eps;
  }
  for (const tenon_fop& op : sdk::ops_of(call.epi)) {
    const bool last = c.silu || c.addend != 0;
    if (op.id == TENON_F_BIAS && c.bias == 0 && !last) {
      c.bias = sdk::AddOp(op).addend;
    } else if (op.id == TENON_F_ADD && !last) {
      c.addend = sdk::AddOp(op).addend;
    } else if (op.id == TENON_F_SILU_MUL && !last) {
      c.silu = true;
    } else {
      refuse("epilogue", op);
    }
  }
  return c;
}

inline cudaDataType lt_type(tenon_format format) {
  switch (format) {
    case TENON_F16:
      return CUDA_R_16F;
    case TENON_BF16:
      return CUDA_R_16BF;
    case TENON_F8E4M3:
      return CUDA_R_8F_E4M3;
    case TENON_I8:
      return CUDA_R_8I;
    case TENON_I32:
      return CUDA_R_32I;
    default:
      return CUDA_R_32F;
  }
}

// One product of a call multiplies these.
struct ProductTensors {
  tenon_tid x, y;
  tenon_tid bias, addend;                // or 0
  double share;                          // it computes this share of the call's rows, for the cost
  tenon_tid x_scales = 0, w_scales = 0;  // if x and w are e4m3: f32[rows], f32[n]
};
inline void record_product(sdk::Recorder& rec, const GemmCall& call, const ProductTensors& tensors) {
  const auto [x, y, bias, addend, share, x_scales, w_scales] = tensors;
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  const int64_t in_bytes = tenon_format_block(from.format).bytes, out_bytes = tenon_format_block(to.format).bytes;
  Product p{};
  p.rows = to.dim[0];
  p.n = call.n;
  p.k = call.k;
  p.x_stride = from.stride[0] / in_bytes;
  p.y_stride = to.stride[0] / out_bytes;
  p.in = lt_type(from.format);
  p.out = lt_type(to.format);
  p.biased = bias != 0;
  if (addend != 0) p.addend_stride = rec.floats_of_row(addend);
  using Operand = GemmOperand;
  const std::vector<tenon_operand> operands = sdk::operands_by(
      Operand::kCount, {{Operand::kX, x, TENON_READ}, {Operand::kW, call.w, TENON_READ}, {Operand::kY, y, TENON_WRITE}},
      {x, TENON_READ},
      {{Operand::kXScales, x_scales, TENON_READ},
       {Operand::kWScales, w_scales, TENON_READ},
       {Operand::kBias, bias, TENON_READ},
       {Operand::kAddend, addend, TENON_READ}});
  sdk::OpSpec spec{.name = call.name, .operands = operands, .chunks = {}, .scratch_bytes = kGemmWorkspaceBytes};
  const auto n = static_cast<double>(call.n), k = static_cast<double>(call.k);
  spec.cost.read[kFixedCost] = static_cast<double>(in_bytes) * n * k;
  spec.cost.read[kCostPerRow] = share * (static_cast<double>(in_bytes) * k + (addend != 0 ? 4 * n : 0));
  spec.cost.written[kCostPerRow] = share * static_cast<double>(out_bytes) * n;
  spec.cost.flops[kCostPerRow] = share * 2 * n * k;
  emit<&gemm>(rec, spec, p, TENON_OP_FOREIGN);
}

// Where a product does not need an operand from kXScales on, kLive stands in its place.
struct PersistentOperand {
  enum : uint32_t { kX, kW, kY, kLive, kXScales, kWScales, kBias, kAddend, kCount };
};
struct PersistentArgs : PersistentGemm {
  uint32_t biased, added;
};
inline void persistent_gemm(const PersistentArgs& a, const Launch& l) {
  using Operand = PersistentOperand;
  PersistentGemmPointers p{};
  p.x = l.ptr<const void>(Operand::kX);
  p.w = l.ptr<const void>(Operand::kW);
  p.y = l.ptr<void>(Operand::kY);
  p.live = l.ptr<const uint32_t>(Operand::kLive);
  if (a.format == TENON_I8) {
    p.x_scales = l.ptr<const float>(Operand::kXScales);
    p.w_scales = l.ptr<const float>(Operand::kWScales);
  }
  if (a.biased != 0) p.bias = l.ptr<const float>(Operand::kBias);
  if (a.added != 0) p.addend = l.ptr<const float>(Operand::kAddend);
  run_persistent_gemm(a, p, l);
}

// A product by a kernel of the project's own has these.
struct PersistentCall {
  tenon_tid x, w, y, live;  // (rows, k), (n, k) dense, and (rows, as many columns as are wanted)
  int64_t n;
  bool silu;
  tenon_tid x_scales = 0, w_scales = 0, bias = 0, addend = 0;  // of int8; the last two may be 0
  const char* name;
};
// Records it as one op, and returns true, where persistent_gemm_blocks() has some and tensors lie as the kernel takes
// them.
inline bool record_persistent(sdk::Recorder& rec, const PersistentCall& call, double least_busy) {
  const tenon_tensor x = rec.describe(call.x), y = rec.describe(call.y);
  const auto row_bytes = [](const tenon_tensor& t) { return t.dim[1] * tenon_format_block(t.format).bytes; };
  // The copy engine takes rows at whole 16 bytes. Parts of wider rows may begin anywhere.
  const auto is_dense = [&](const tenon_tensor& t) { return t.stride[0] == row_bytes(t) && row_bytes(t) % 16 == 0; };
  if (!is_dense(x) || !is_dense(y) || (call.addend != 0 && !is_dense(rec.describe(call.addend)))) return false;
  const bool is_right = y.format == (!call.silu ? TENON_F32 : x.format == TENON_BF16 ? TENON_BF16 : TENON_F16);
  if (!is_right) return false;
  PersistentArgs a{};
  a.rows = static_cast<uint32_t>(y.dim[0]);
  a.columns = static_cast<uint32_t>(y.dim[1]);
  a.k = static_cast<uint32_t>(x.dim[1]);
  a.w_rows = static_cast<uint32_t>(call.n);
  a.format = x.format;
  a.silu = call.silu ? 1 : 0;
  a.biased = call.bias != 0 ? 1 : 0;
  a.added = call.addend != 0 ? 1 : 0;
  a.blocks = persistent_gemm_blocks(a, least_busy);
  if (a.blocks == 0) return false;
  using Operand = PersistentOperand;
  const std::vector<tenon_operand> operands = sdk::operands_by(Operand::kCount,
                                                               {{Operand::kX, call.x, TENON_READ},
                                                                {Operand::kW, call.w, TENON_READ},
                                                                {Operand::kY, call.y, TENON_WRITE},
                                                                {Operand::kLive, call.live, TENON_READ}},
                                                               {call.live, TENON_READ},
                                                               {{Operand::kXScales, call.x_scales, TENON_READ},
                                                                {Operand::kWScales, call.w_scales, TENON_READ},
                                                                {Operand::kBias, call.bias, TENON_READ},
                                                                {Operand::kAddend, call.addend, TENON_READ}});
  sdk::OpSpec spec{.name = call.name, .operands = operands, .chunks = {}};
  spec.blocks = TENON_BLOCKS_WHOLE;
  const auto n = static_cast<double>(call.n), k = static_cast<double>(x.dim[1]);
  const auto x_row = static_cast<double>(row_bytes(x)), y_row = static_cast<double>(row_bytes(y));
  spec.cost.read[kFixedCost] = n * x_row;
  spec.cost.read[kCostPerRow] = x_row + (call.addend != 0 ? y_row : 0);
  spec.cost.written[kCostPerRow] = y_row;
  spec.cost.flops[kCostPerRow] = 2 * n * k;
  emit<&persistent_gemm>(rec, spec, a);
  return true;
}

// Returns a view of the rows [first, first + rows) of a tensor.
inline tenon_tid row_slice(sdk::Recorder& rec, tenon_tid of, int64_t first, int64_t rows) {
  tenon_tensor t = rec.describe(of);
  t.dim[0] = rows;
  return rec.slice(of, t, static_cast<uint64_t>(first * t.stride[0]));
}

}  // namespace detail

inline void record_gemm(sdk::Recorder& rec, const GemmCall& call) {
  const detail::GemmChains chains = detail::read_chains(call);
  if (call.w_format != TENON_F16 && call.w_format != TENON_BF16 && call.w_format != TENON_F32) {
    throw sdk::Failed(std::string("record_gemm multiplies f16, bf16 and f32 weights, not ") +
                      tenon_format_name(call.w_format));
  }
  const int64_t rows = rec.describe(call.x).dim[0];
  const tenon_format from = rec.describe(call.x).format, to = rec.describe(call.y).format;
  if ((from != TENON_F32 && (from != call.w_format || chains.norm)) ||
      (to != TENON_F32 && (to != call.w_format || !chains.silu))) {
    throw sdk::Failed(std::string("record_gemm cannot go from ") + tenon_format_name(from) + " to " +
                      tenon_format_name(to) + " here");
  }
  const tenon_tid live = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
  tenon_tid x = call.x;
  if (chains.norm || call.w_format != from) {
    constexpr int64_t kWhole = 8;  // rows begin at 16 bytes whatever k is
    tenon_tensor t = sdk::tensor(call.w_format, {rows, call.k});
    t.stride[0] = (call.k + kWhole - 1) / kWhole * kWhole * tenon_format_block(call.w_format).bytes;
    x = rec.temp(t);
    record_norm_rows(rec, {.x = call.x, .y = x, .weight = chains.norm_weight, .eps = chains.eps, .row_live = live});
  }
  if (!chains.silu) return detail::record_product(rec, call, {x, call.y, chains.bias, chains.addend, 1});
  constexpr double kLeastBusy = 0.9;  // else cuBLASLt and another op are faster
  const detail::PersistentCall one{
      .x = x, .w = call.w, .y = call.y, .live = live, .n = call.n, .silu = true, .name = call.name};
  if (call.w_format != TENON_F32 && chains.bias == 0 && detail::record_persistent(rec, one, kLeastBusy)) return;
  const int64_t pieces = (rows + kSiluPieceRows - 1) / kSiluPieceRows, piece = (rows + pieces - 1) / pieces;
  const tenon_tid product = rec.temp(sdk::tensor(call.w_format, {piece, call.n}));
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t count = std::min(piece, rows - first);
    const double share = static_cast<double>(count) / static_cast<double>(rows);
    const tenon_tid sums = detail::row_slice(rec, product, 0, count);
    detail::record_product(rec, call, {detail::row_slice(rec, x, first, count), sums, 0, 0, share});
    record_silu_mul_rows(rec, {sums, chains.bias, detail::row_slice(rec, call.y, first, count), live,
                               static_cast<uint32_t>(first), share});
  }
}

}  // namespace tenon::cuda
