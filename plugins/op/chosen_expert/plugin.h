#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Gives the expert of a rank, as the bits of an i32. Shazeer et al. 2017, arXiv:1701.06538.
class ChosenExpert : public sdk::Op<ChosenExpert> {
 public:
  static constexpr const char* kName = "chosen_expert";
  static constexpr const char* kDoc = "The number of the expert whose score has a rank, as the bits of an i32.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = 0;
  enum Integer : uint32_t { kRank };
  static constexpr auto kArgs = sdk::op_args(sdk::op_integer("rank", kRank, "0 for the highest score"));

  ChosenExpert(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop& op, int64_t x) const {
    if (op.i[kRank] >= 0 && op.i[kRank] < x) return 1;
    throw sdk::Refused("rank " + std::to_string(op.i[kRank]) + " of " + std::to_string(x) + " experts");
  }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
