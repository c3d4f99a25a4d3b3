// Outliers of x are its finite numbers of a magnitude at or above a threshold, each row's own. Rows of int8 meet them in
// fp16, and all other numbers of x in int8:
//   y[r][c] = (product of integers, in which outliers count as zeros) + scale[c] * (sum of fp16(x[r][i]) * q[c][i] over
//             outliers i)
// The second sum is an op after the product. Where the scheme's kernels do not leave outliers out by themselves
// (Int8Rows::kOutlier), an op before the product makes x without them.
//
// Source: Dettmers et al., "LLM.int8()", 2022 (arXiv 2208.07339), which takes a column of all rows out as soon as one
// row has an outlier there; here a row's result does not depend on the rows around it.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/abi/quantization.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk::cpu {
struct LinearSite;
}

namespace tenon::int8_rows {

// It is for the host and, with relaxed constexpr, for CUDA.
constexpr bool is_at_least(float threshold, float x) {
  return x >= threshold || x <= -threshold;
}
// Returns x among the integers. An infinite number stays, so that its row has no finite products.
constexpr float without_outlier(float threshold, float x) {
  return is_at_least(threshold, x) && x - x == 0 ? 0 : x;
}

// Returns the live words of the rows that a product has.
inline tenon_tid live_rows_of(const tenon_linear_call& call, sdk::Recorder& rec) {
  return call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
}

// Returns what a scheme's base claims of a site, without the ops around the product: outliers are those of x as it is,
// and they are added after the product. Throws Refused for activations other than f32.
template <class Base>
tenon_claim claim_beside_outliers(const Base& base, const tenon_linear& s, const tenon_bounds& b) {
  if (s.x_format != TENON_F32 || s.y_format != TENON_F32) {
    throw sdk::Refused("activations other than f32, in which outliers are looked for");
  }
  tenon_claim claim = base.claim(s, b);
  claim.pro = claim.epi = 0;
  return claim;
}

// to[r][i] = without_outlier(x[r][i]) for live rows: (rows, k) f32.
struct WithoutOutliersArgs {
  uint32_t k, rows;
  float threshold;
  uint32_t reserved;
  int64_t x_stride;  // floats
};
struct WithoutOutliersOperand {
  enum : uint32_t { kTo, kX, kLive, kCount };
};
// Has emit(spec, args) emit that op, a chunk a row on the CPU, and returns the tensor that it makes.
template <class Emit>
tenon_tid record_without_outliers(uint32_t k, float threshold, const tenon_linear_call& call, sdk::Recorder& rec,
                                  const Emit& emit) {
  const auto rows = static_cast<uint32_t>(rec.describe(call.x).dim[0]);
  const WithoutOutliersArgs args{k, rows, threshold, 0, rec.floats_of_row(call.x)};
  const tenon_tid to = rec.temp(sdk::tensor(TENON_F32, {int64_t{rows}, int64_t{k}}));
  using Operand = WithoutOutliersOperand;
  const std::vector<tenon_operand> operands =
      sdk::operands_by(Operand::kCount, {{Operand::kTo, to, TENON_WRITE},
                                         {Operand::kX, call.x, TENON_READ},
                                         {Operand::kLive, live_rows_of(call, rec), TENON_READ}});
  sdk::OpSpec spec{.name = "without_outliers", .operands = operands, .chunks = {rows}};
  spec.cost.read[sdk::kCostPerRow] = spec.cost.written[sdk::kCostPerRow] = double{sizeof(float)} * k;
  emit(spec, args);
  return to;
}

// These are the ops on the CPU. Of the second one columns are cut by the device's `threads`.
tenon_tid record_without_outliers(const sdk::cpu::LinearSite& site, float threshold, const tenon_linear_call& call,
                                  sdk::Recorder& rec);
struct OutlierSums {
  float threshold;
  uint32_t threads;
};
void record_outliers(const sdk::cpu::LinearSite& site, const OutlierSums& sums, const tenon_linear_call& call,
                     sdk::Recorder& rec);

}  // namespace tenon::int8_rows
