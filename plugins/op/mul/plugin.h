#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = x * factor.
class Mul : public sdk::Op<Mul> {
 public:
  static constexpr const char* kName = "mul";
  static constexpr const char* kDoc = "Rows times rows, element by element.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE | TENON_SMALL_OP_BY_COLUMN;
  enum Tensor : uint32_t { kFactor };
  static constexpr auto kArgs = sdk::op_args(sdk::op_rows("factor", kFactor));

  Mul(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
