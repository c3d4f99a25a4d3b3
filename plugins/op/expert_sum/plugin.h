#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Adds what the chosen experts made of a row, each by its weight. See Shazeer et al. 2017,
// arXiv:1701.06538; Jiang et al. 2024, arXiv:2401.04088.
class ExpertSum : public sdk::Op<ExpertSum> {
 public:
  static constexpr const char* kName = "expert_sum";
  static constexpr const char* kDoc = "The weighted sum of what a row's experts made of it, and an addend.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = 0;
  enum Tensor : uint32_t { kExperts, kScores, kAddend };
  enum Integer : uint32_t { kChosen, kRenormalised, kCount };
  static constexpr auto kArgs = sdk::op_args(
      sdk::op_rows("experts", kExperts, "the row's experts, as chosen_experts leaves them"),
      sdk::op_rows("scores", kScores, "the router's, one for each expert"), sdk::op_rows("addend", kAddend),
      sdk::op_integer("chosen", kChosen, "the experts of a row, whose columns lie side by side in x"),
      sdk::op_integer("renormalised", kRenormalised, "1: the weights of the chosen ones have the sum 1"),
      sdk::op_integer("count", kCount, "of all experts"));

  ExpertSum(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop& op, int64_t x) const {
    const int32_t chosen = op.i[kChosen], count = op.i[kCount];
    if (chosen >= 1 && chosen <= count && x % chosen == 0) return x / chosen;
    throw sdk::Refused(std::to_string(chosen) + " chosen of " + std::to_string(count) + " experts, in " +
                       std::to_string(x) + " columns");
  }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
