// What quantization.gptq writes, and what it observes for that: see solver.h for how codes are chosen.
#pragma once

#include <string>

#include "schema.h"
#include "solver.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/component.h"
#include "tenon/sdk/recorder.h"

namespace tenon::gptq {

class Writer : public Schema {
 public:
  Writer(const sdk::Params& params, const sdk::Env& env);

  tenon_written describe(const tenon_linear& s) const;
  void encode(const tenon_linear& s, const tenon_encode& e) const;
  uint64_t observed_bytes(const tenon_linear& s) const;
  void observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const;

 private:
  // For a row of so many columns.
  SolverOptions options(int64_t columns) const;

  uint32_t bits_;
  int64_t group_;  // -1: the whole row
  bool act_order_, static_groups_, symmetric_, search_;
  double damp_;
  sdk::cpu::Isa isa_;
  uint32_t threads_;
  std::string description_;
};

}  // namespace tenon::gptq
