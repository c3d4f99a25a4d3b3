#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Gives the experts of the highest ranks, as the bits of i32. See Shazeer et al. 2017, arXiv:1701.06538.
class ChosenExperts : public sdk::Op<ChosenExperts> {
 public:
  static constexpr const char* kName = "chosen_experts";
  static constexpr const char* kDoc = "The numbers of the experts with the highest scores, as the bits of i32.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = 0;
  enum Integer : uint32_t { kChosen };
  static constexpr auto kArgs = sdk::op_args(sdk::op_integer("chosen", kChosen, "so many, the highest score first"));

  ChosenExperts(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop& op, int64_t x) const {
    if (op.i[kChosen] >= 1 && op.i[kChosen] <= x) return op.i[kChosen];
    throw sdk::Refused(std::to_string(op.i[kChosen]) + " chosen of " + std::to_string(x) + " experts");
  }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
