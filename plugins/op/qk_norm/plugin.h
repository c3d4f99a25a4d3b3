#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes the RMSNorm of each head of Q, and of K, with a weight for each, and leaves V as it is; Henry et al. 2020,
// arXiv:2010.04245.
class QkNorm : public sdk::Op<QkNorm> {
 public:
  static constexpr const char* kName = "qk_norm";
  static constexpr const char* kDoc = "RMS norm of every query head and every key head.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_QK_NORM;
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE;
  enum Tensor : uint32_t { kQWeight, kKWeight };
  enum Number : uint32_t { kEps };
  static constexpr auto kArgs =
      sdk::op_args_over_heads(sdk::op_table("q_weight", kQWeight, "f32 of k_dim"),
                              sdk::op_table("k_weight", kKWeight, "f32 of k_dim"), sdk::op_number("eps", kEps));

  QkNorm(const sdk::Params&, const sdk::Env&) {}
  int64_t columns(const tenon_fop& op, int64_t x) const { return sdk::columns_of_heads(op, x); }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
