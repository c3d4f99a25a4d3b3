// This makes a small op on the CPU of a function of one row; it goes over the live rows in chunks.
//
//   enum BiasTensor { kBias };  // the op's t
//   void bias(const cpu::Row& row) {
//     for (int64_t i = 0; i < row.args.columns; ++i) row.y[i] = row.x[i] + row.operand(kBias)[i];
//   }
//   void Bias::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
//     cpu::record_rows<&bias>({.name = "bias"}, op, x, y, r);
//   }
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk::cpu {

struct SmallOpArgs {
  int64_t columns, x_stride, y_stride;  // the columns of x; elements from row to row of x, and of y
  int64_t stride[4];                    // from row to row of t[i]; 0 for what all rows share
  float f[4];
  int32_t i[8];
  uint32_t rows, tensors;  // tensors: how many of the op's are there
};

// The function gets one live row. x may be y.
struct Row {
  // After kLive come the op's tensors that are there, from kTensors on, and then the step state that it reads.
  enum Operand : uint32_t { kX, kY, kLive, kTensors };

  const SmallOpArgs& args;
  const Part& part;
  uint32_t row;
  const float* x;
  float* y;

  // Returns the i-th of the op's tensors that are there, at this row.
  const float* operand(size_t i) const { return part.ptr<const float>(kTensors + i) + row * args.stride[i]; }
  // Returns the i-th tensor of the step state that record_rows was told of.
  const int32_t* step(size_t i) const { return part.ptr<const int32_t>(kTensors + args.tensors + i); }
};

namespace detail {

inline constexpr uint32_t kRowsAChunk = 4;

template <auto Fn>
void run_rows(const SmallOpArgs& a, const Part& p) {
  const uint32_t live = std::min(p.ptr<uint32_t>(Row::kLive)[kLiveRows], a.rows);
  for (uint32_t chunk = p.begin(); chunk < p.end(); ++chunk) {
    for (uint32_t r = chunk * kRowsAChunk; r < std::min((chunk + 1) * kRowsAChunk, live); ++r) {
      Fn(Row{a, p, r, p.ptr<const float>(Row::kX) + r * a.x_stride, p.ptr<float>(Row::kY) + r * a.y_stride});
    }
  }
}

}  // namespace detail

struct RowOp {
  const char* name;
  bool has_rows = false;                       // the op's tensors are ROWS, else VECTORs and TABLEs
  std::initializer_list<uint32_t> steps = {};  // roles of step state that it reads
};

// Fn is a void (const Row&). Throws Failed.
template <auto Fn>
void record_rows(const RowOp& spec, const tenon_fop& op, tenon_tid x, tenon_tid y, Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  SmallOpArgs a{};
  a.columns = from.dim[1];
  a.x_stride = rec.floats_of_row(x);
  a.y_stride = rec.floats_of_row(y);
  a.rows = static_cast<uint32_t>(from.dim[0]);
  std::copy(std::begin(op.f), std::end(op.f), a.f);
  std::copy(std::begin(op.i), std::end(op.i), a.i);
  std::vector<tenon_operand> operands =
      operands_by(Row::kTensors, {{Row::kX, x, TENON_READ},
                                  {Row::kY, y, TENON_WRITE},
                                  {Row::kLive, op.live != 0 ? op.live : rec.step(TENON_STEP_LIVE), TENON_READ}});
  for (const tenon_tid t : op.t) {
    if (t == 0) continue;
    if (spec.has_rows) a.stride[a.tensors] = rec.floats_of_row(t);
    operands.push_back({t, TENON_READ});
    ++a.tensors;
  }
  for (const uint32_t role : spec.steps) operands.push_back({rec.step(role), TENON_READ});
  const uint32_t chunks = (a.rows + detail::kRowsAChunk - 1) / detail::kRowsAChunk;
  tenon_cost cost{};
  cost.read[kCostPerRow] = 4.0 * static_cast<double>(a.columns);
  cost.written[kCostPerRow] = 4.0 * static_cast<double>(to.dim[1]);
  cost.flops[kCostPerRow] = static_cast<double>(a.columns);
  rec.emit<&detail::run_rows<Fn>>({.name = spec.name, .operands = operands, .chunks = {chunks}, .cost = cost}, a);
}

}  // namespace tenon::sdk::cpu
