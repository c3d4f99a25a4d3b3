// quantization.none has weights as plain floats.
#pragma once

#include <memory>
#include <span>

#include "schema.h"
#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::none {

sdk::cpu::Kernels kernels(sdk::cpu::Isa isa);

class None : public sdk::cpu::LinearScheme<None, &kernels>, public Schema {
 public:
  None(const sdk::Params& params, const sdk::Env& env);

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const;
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const;
  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void* queue) const;

 private:
  tenon_format held(tenon_format source) const;

  tenon_format dtype_;  // TENON_FORMAT_NONE: it stays as stored
};

}  // namespace tenon::none
