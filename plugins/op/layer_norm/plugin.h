#pragma once

#include "tenon/sdk/op.h"

namespace tenon::op {

// Computes y = (x - mean(x)) * rsqrt(variance(x) + eps) * weight + bias; Ba, Kiros and Hinton 2016, arXiv:1607.06450.
class LayerNorm : public sdk::Op<LayerNorm> {
 public:
  static constexpr const char* kName = "layer_norm";
  static constexpr const char* kDoc = "Rows moved to mean 0 and variance 1, times a vector, plus a vector.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_LAYER_NORM;
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE;
  enum Tensor : uint32_t { kWeight, kBias };
  enum Number : uint32_t { kEps };
  static constexpr auto kArgs =
      sdk::op_args(sdk::op_vector("weight", kWeight), sdk::op_vector("bias", kBias), sdk::op_number("eps", kEps));

  LayerNorm(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
