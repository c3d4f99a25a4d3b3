// quantization.int4wo: 4-bit weights in groups with a scale and a zero point each.
#pragma once

#include <memory>
#include <span>

#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::int4wo {

sdk::cpu::Kernels kernels(sdk::cpu::Isa isa);

class Int4wo : public sdk::cpu::LinearScheme<Int4wo, &kernels> {
 public:
  static constexpr const char* kName = "int4wo";
  static constexpr const char* kDoc = "4-bit weights in groups with scale and zero point; activations in f32";
  static constexpr auto kParams =
      sdk::params(sdk::integer({.name = "group_size",
                                .doc = "weights of a row that share a scale and a zero point",
                                .value = 64,
                                .min = 32,
                                .max = 256,
                                .choices = "32|64|128|256",
                                .unit = "weights"}));

  Int4wo(const sdk::Params& params, const sdk::Env& env);

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const;
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const;
  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void* queue) const;

 private:
  uint32_t group_;
};

}  // namespace tenon::int4wo
