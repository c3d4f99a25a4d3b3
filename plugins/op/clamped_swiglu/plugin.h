#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = gate * sigmoid(alpha * gate) * (up + 1), where x is gate and up side by side, the gate is at most
// `limit` and up is between -limit and limit. See OpenAI 2025, arXiv:2508.10925.
class ClampedSwiglu : public sdk::Op<ClampedSwiglu> {
 public:
  static constexpr const char* kName = "clamped_swiglu";
  static constexpr const char* kDoc = "The gate of a SwiGLU whose halves are clamped, with one added to the second.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = 0;
  enum Number : uint32_t { kAlpha, kLimit };
  static constexpr auto kArgs =
      sdk::op_args(sdk::op_number("alpha", kAlpha, "multiplies the gate in the sigmoid"),
                   sdk::op_number("limit", kLimit, "of the gate from above, and of the other half from both sides"));

  ClampedSwiglu(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop&, int64_t x) const { return sdk::half_of_columns(x); }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
