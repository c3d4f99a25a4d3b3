// quantization.gguf: matrices multiplied as the file stores them, GGUF's blocks and plain floats. Nothing is converted,
// so the host may hand out the file's mapping.
#pragma once

#include <memory>
#include <span>

#include "schema.h"
#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::gguf {

sdk::cpu::Kernels kernels(sdk::cpu::Isa isa);

class Gguf : public sdk::cpu::LinearScheme<Gguf, &kernels>, public Schema {
 public:
  Gguf(const sdk::Params& params, const sdk::Env& env);

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const;
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const;
  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void* queue) const;

 private:
  bool int8_;
};

}  // namespace tenon::gguf
