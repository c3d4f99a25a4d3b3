// This writes checkpoints in AWQ's form; search.h says how factors and grids are chosen by what was observed.
#pragma once

#include <string>

#include "../calibrated/observe.h"
#include "schema.h"
#include "search.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/component.h"

namespace tenon::awq {

class Writer : public Schema, public calibrated::ObservesMoments {
 public:
  Writer(const sdk::Params& params, const sdk::Env& env);

  tenon_written describe(const tenon_linear& s) const;
  void encode(const tenon_linear& s, const tenon_encode& e) const;
  void column_factors(const tenon_linear& s, const tenon_column_factors& c) const;

 private:
  // Returns how a row of so many columns is rounded.
  Rounding rounding(int64_t columns) const;

  int64_t group_;  // -1: it is the whole row
  bool scale_, clip_;
  uint32_t threads_;
  std::string description_;
};

}  // namespace tenon::awq
