// Divides every logit by max(value, 1e-5).
#pragma once

#include <algorithm>

#include "tenon/sdk/sampler.h"

namespace tenon::temperature {

class Temperature : public sdk::Sampler<Temperature> {
 public:
  static constexpr const char* kName = "temperature";
  static constexpr const char* kDoc = "Below 1 sharper, above 1 flatter; 0 is as good as the most likely token";
  static constexpr auto kParams = sdk::params(sdk::real({.name = "value",
                                                         .doc = "Divides the logits; values below 1e-5 count as 1e-5",
                                                         .value = 0.8,
                                                         .min = 0,
                                                         .max = 1000,
                                                         .flags = TENON_PARAM_PER_REQUEST}));
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    float divisor;
  };

  Temperature(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& request) const {
    return {static_cast<float>(std::max(request.real("value"), 1e-5))};
  }
  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;
};

}  // namespace tenon::temperature
