// quantization.gguf multiplies matrices by the bits that the file stores, GGUF's blocks and plain floats. What is
// multiplied with x in f32 lies as in the file, so the host may hand out its mapping; with x in int8, sixteen rows side
// by side.
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
  enum class Wish { kAuto, kF32, kInt8 };
  sdk::cpu::Activations activations_of(const tenon_linear& s) const;

  Wish wish_;
};

}  // namespace tenon::gguf
