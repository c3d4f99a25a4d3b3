#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = cap * tanh(x / cap).
class Softcap : public sdk::Op<Softcap> {
 public:
  static constexpr const char* kName = "softcap";
  static constexpr const char* kDoc = "Values pressed smoothly below a bound.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_SOFTCAP;
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE | TENON_SMALL_OP_BY_COLUMN;
  enum Number : uint32_t { kCap };
  static constexpr auto kArgs = sdk::op_args(sdk::op_number("cap", kCap));

  Softcap(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
