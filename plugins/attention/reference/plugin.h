// This computes attention by its formula, in float64, over plain fp32 caches.
#pragma once

#include <cstdint>

#include "tenon/sdk/attention.h"

namespace tenon::reference {

class Reference : public sdk::Attention<Reference> {
 public:
  static constexpr const char* kName = "reference";
  static constexpr const char* kDoc = "The formula in float64, to compare with; reads fp32 caches only";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = UINT32_MAX;

  Reference(const sdk::Params&, const sdk::Env&) {}

  tenon_claim claim(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b) const;
  tenon_kv_format preferred_format() const;
  void record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const;
};

}  // namespace tenon::reference
