// quantization.int4wo has 4-bit weights in groups with a scale and a zero point each.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "../rows/encode.h"
#include "schema.h"
#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::int4wo {

sdk::cpu::Kernels kernels(sdk::cpu::Isa isa);

class Int4wo : public sdk::cpu::LinearScheme<Int4wo, &kernels>, public Schema {
 public:
  Int4wo(const sdk::Params& params, const sdk::Env& env);

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const;
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const;
  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void* queue) const;
  tenon_written describe(const tenon_linear& s) const;
  void encode(const tenon_linear& s, const tenon_encode& e) const;

 private:
  uint32_t group_;
  rows::Int4GroupOf group_of_;
  std::string description_;  // it describes what is written
};

}  // namespace tenon::int4wo
