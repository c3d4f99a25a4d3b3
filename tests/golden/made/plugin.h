#pragma once

#include "tenon/sdk/op.h"

namespace acme {

// Computes y = relu(gate)^2 * up. So et al. 2021, arXiv:2109.08668.
class Relu2Mul : public tenon::sdk::Op<Relu2Mul> {
 public:
  static constexpr const char* kName = "acme.relu2_mul";
  static constexpr const char* kDoc = "A gate: the squared relu of the first half of the columns times the second.";
  static constexpr auto kParams = tenon::sdk::params();
  static constexpr uint32_t kFlags = 0;
  static constexpr auto kArgs = tenon::sdk::op_args();

  Relu2Mul(const tenon::sdk::Params&, const tenon::sdk::Env&) {}
  int64_t columns(const tenon_fop&, int64_t x) const { return tenon::sdk::half_of_columns(x); }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, tenon::sdk::Recorder& r) const;
};

}  // namespace acme
