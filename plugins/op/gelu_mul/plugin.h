#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = gelu(gate) * up in the form with tanh; Hendrycks and Gimpel 2016, arXiv:1606.08415; Shazeer 2020,
// arXiv:2002.05202.
class GeluMul : public sdk::Op<GeluMul> {
 public:
  static constexpr const char* kName = "gelu_mul";
  static constexpr const char* kDoc =
      "The gate of a GeGLU: gelu (with tanh) of the first half of the columns times the second.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_GELU_MUL;
  static constexpr uint32_t kFlags = 0;
  static constexpr auto kArgs = sdk::op_args();

  GeluMul(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop&, int64_t x) const { return sdk::half_of_columns(x); }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
