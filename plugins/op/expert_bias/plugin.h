#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = x + bias[expert of the row]. See OpenAI 2025, arXiv:2508.10925.
class ExpertBias : public sdk::Op<ExpertBias> {
 public:
  static constexpr const char* kName = "expert_bias";
  static constexpr const char* kDoc = "To every row the bias of its expert is added.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE;
  enum Tensor : uint32_t { kBias, kExpert };
  enum Integer : uint32_t { kExperts };
  static constexpr auto kArgs =
      sdk::op_args(sdk::op_table("bias", kBias, "f32 (experts, columns)"),
                   sdk::op_rows("expert", kExpert, "the first column has the row's expert, as the bits of an i32"),
                   sdk::op_integer("experts", kExperts));

  ExpertBias(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
