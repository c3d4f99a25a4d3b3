// Keeps the k most likely candidates and all that tie with the k-th; the rest of the chain sees few, in falling order.
#pragma once

#include "tenon/sdk/sampler.h"

namespace tenon::top_k {

class TopK : public sdk::Sampler<TopK> {
 public:
  static constexpr const char* kName = "top_k";
  static constexpr const char* kDoc = "The k most likely tokens and those that tie with the last of them";
  static constexpr auto kParams = sdk::params(sdk::integer({.name = "k",
                                                            .doc = "Tokens to keep; 0 keeps all",
                                                            .value = 200,
                                                            .min = 0,
                                                            .max = 1 << 24,
                                                            .unit = "tokens",
                                                            .flags = TENON_PARAM_PER_REQUEST}));
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    uint32_t k;
  };

  TopK(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& request) const { return {static_cast<uint32_t>(request.integer("k"))}; }
  // Gives SPARSE, in falling order of logit, rising ids among equal logits. Any
  // number may tie, so rows have room for all.
  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;
};

}  // namespace tenon::top_k
