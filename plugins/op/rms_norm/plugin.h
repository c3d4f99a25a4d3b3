#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = x * rsqrt(mean(x^2) + eps) * weight; Zhang and Sennrich 2019, arXiv:1910.07467.
class RmsNorm : public sdk::Op<RmsNorm> {
 public:
  static constexpr const char* kName = "rms_norm";
  static constexpr const char* kDoc = "Rows divided by their root mean square, times a vector.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_RMSNORM;
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE;
  enum Tensor : uint32_t { kWeight };
  enum Number : uint32_t { kEps };
  static constexpr auto kArgs = sdk::op_args(sdk::op_vector("weight", kWeight), sdk::op_number("eps", kEps));

  RmsNorm(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
