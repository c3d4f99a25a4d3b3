#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = gelu(x) in the form with tanh; Hendrycks and Gimpel 2016, arXiv:1606.08415.
class Gelu : public sdk::Op<Gelu> {
 public:
  static constexpr const char* kName = "gelu";
  static constexpr const char* kDoc = "The activation gelu (with tanh) of an MLP that has no gate.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE | TENON_SMALL_OP_BY_COLUMN;
  static constexpr auto kArgs = sdk::op_args();

  Gelu(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
