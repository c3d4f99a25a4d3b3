#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Gives each row several times, side by side.
class Repeat : public sdk::Op<Repeat> {
 public:
  static constexpr const char* kName = "repeat";
  static constexpr const char* kDoc = "Each row several times, side by side.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = 0;
  enum Integer : uint32_t { kTimes };
  static constexpr auto kArgs = sdk::op_args(sdk::op_integer("times", kTimes, "so often y has a row of x"));

  Repeat(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop& op, int64_t x) const {
    if (op.i[kTimes] >= 1) return op.i[kTimes] * x;
    throw sdk::Refused("times is " + std::to_string(op.i[kTimes]) + "; expected at least 1");
  }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
