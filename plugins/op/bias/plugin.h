#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = x + bias.
class Bias : public sdk::Op<Bias> {
 public:
  static constexpr const char* kName = "bias";
  static constexpr const char* kDoc = "A vector added to every row.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_BIAS;
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE | TENON_SMALL_OP_BY_COLUMN;
  enum Tensor : uint32_t { kBias };
  static constexpr auto kArgs = sdk::op_args(sdk::op_vector("bias", kBias));

  Bias(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
