#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Gives the weight of the expert of a rank, in each column of y. Shazeer et al. 2017, arXiv:1701.06538; Jiang et al. 2024,
// arXiv:2401.04088.
class ExpertWeight : public sdk::Op<ExpertWeight> {
 public:
  static constexpr const char* kName = "expert_weight";
  static constexpr const char* kDoc = "The weight of the expert whose score has a rank, in every column.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = 0;
  enum Integer : uint32_t { kRank, kChosen, kRenormalised, kColumns };
  static constexpr auto kArgs =
      sdk::op_args(sdk::op_integer("rank", kRank, "0 for the highest score"),
                   sdk::op_integer("chosen", kChosen, "the experts of a row"),
                   sdk::op_integer("renormalised", kRenormalised, "1: the weights of the chosen ones have the sum 1"),
                   sdk::op_integer("columns", kColumns, "of y"));

  ExpertWeight(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop& op, int64_t x) const {
    const int32_t rank = op.i[kRank], chosen = op.i[kChosen];
    if (rank >= 0 && rank < chosen && chosen <= x && op.i[kColumns] > 0) return op.i[kColumns];
    throw sdk::Refused("rank " + std::to_string(rank) + " of " + std::to_string(chosen) + " chosen of " +
                       std::to_string(x) + " experts, in " + std::to_string(op.i[kColumns]) + " columns");
  }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
