// What quantization.awq writes, and what it observes for that: see search.h for how factors and grids are chosen.
#pragma once

#include <string>

#include "schema.h"
#include "search.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/component.h"
#include "tenon/sdk/recorder.h"

namespace tenon::awq {

class Writer : public Schema {
 public:
  Writer(const sdk::Params& params, const sdk::Env& env);

  tenon_written describe(const tenon_linear& s) const;
  void encode(const tenon_linear& s, const tenon_encode& e) const;
  uint64_t observed_bytes(const tenon_linear& s) const;
  void observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const;
  void column_factors(const tenon_linear& s, const tenon_column_factors& c) const;

 private:
  // For a row of so many columns.
  Rounding rounding(int64_t columns) const;

  int64_t group_;  // -1: the whole row
  bool scale_, clip_;
  sdk::cpu::Isa isa_;
  uint32_t threads_;
  std::string description_;
};

}  // namespace tenon::awq
