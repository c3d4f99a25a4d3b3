// This writes checkpoints in GPTQ's form; solver.h says how codes are chosen by what was observed.
#pragma once

#include <string>

#include "../calibrated/observe.h"
#include "schema.h"
#include "solver.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/component.h"

namespace tenon::gptq {

class Writer : public Schema, public calibrated::ObservesMoments {
 public:
  Writer(const sdk::Params& params, const sdk::Env& env);

  tenon_written describe(const tenon_linear& s) const;
  void encode(const tenon_linear& s, const tenon_encode& e) const;

 private:
  // Returns how a row of so many columns is solved.
  SolverOptions options(int64_t columns) const;

  uint32_t bits_;
  int64_t group_;  // -1: it is the whole row
  bool act_order_, static_groups_, symmetric_, search_;
  double damp_;
  uint32_t threads_;
  std::string description_;
};

}  // namespace tenon::gptq
