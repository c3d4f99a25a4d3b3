#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Gives the count of live rows times a number, as the bits of a u32: also where no row is live.
class LiveRows : public sdk::Op<LiveRows> {
 public:
  static constexpr const char* kName = "live_rows";
  static constexpr const char* kDoc =
      "How many rows are live, times a number, as the bits of a u32 in every live row, and in the first one in any "
      "case.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = 0;
  enum Integer : uint32_t { kTimes };
  static constexpr auto kArgs = sdk::op_args(sdk::op_integer("times", kTimes, "the number"));

  LiveRows(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop&, int64_t) const { return 1; }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
