#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = factor * x.
class Scale : public sdk::Op<Scale> {
 public:
  static constexpr const char* kName = "scale";
  static constexpr const char* kDoc = "Every element times one number.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_SCALE;
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE | TENON_SMALL_OP_BY_COLUMN;
  enum Number : uint32_t { kFactor };
  static constexpr auto kArgs = sdk::op_args(sdk::op_number("factor", kFactor));

  Scale(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
