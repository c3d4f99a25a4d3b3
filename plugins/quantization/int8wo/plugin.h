// quantization.int8wo has int8 weights with one scale a row of the matrix.
#pragma once

#include <memory>
#include <span>

#include "schema.h"
#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::int8wo {

sdk::cpu::Kernels kernels(sdk::cpu::Isa isa);

class Int8wo : public sdk::cpu::LinearScheme<Int8wo, &kernels>, public Schema {
 public:
  Int8wo(const sdk::Params&, const sdk::Env& env) : LinearScheme(env) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const;
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const;
  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void* queue) const;
  tenon_written describe(const tenon_linear& s) const;
  void encode(const tenon_linear& s, const tenon_encode& e) const;
};

}  // namespace tenon::int8wo
