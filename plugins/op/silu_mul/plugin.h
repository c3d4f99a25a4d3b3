#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = silu(gate) * up, where x is gate and up side by side; Shazeer 2020, arXiv:2002.05202.
class SiluMul : public sdk::Op<SiluMul> {
 public:
  static constexpr const char* kName = "silu_mul";
  static constexpr const char* kDoc = "The gate of a SwiGLU: silu of the first half of the columns times the second.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_SILU_MUL;
  static constexpr uint32_t kFlags = 0;
  static constexpr auto kArgs = sdk::op_args();

  SiluMul(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop&, int64_t x) const { return sdk::half_of_columns(x); }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
