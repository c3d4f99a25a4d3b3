#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = x + addend.
class Add : public sdk::Op<Add> {
 public:
  static constexpr const char* kName = "add";
  static constexpr const char* kDoc = "Rows added to rows: the residual.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_ADD;
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE | TENON_SMALL_OP_BY_COLUMN;
  enum Tensor : uint32_t { kAddend };
  static constexpr auto kArgs = sdk::op_args(sdk::op_rows("addend", kAddend));

  Add(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
