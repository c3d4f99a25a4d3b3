// Subtracts frequency * count + presence from the logits of tokens that the sequence holds, prompt included.
// A row sees what was accepted and its own tokens of this step, up its parents.
#pragma once

#include "tenon/sdk/cpu/penalty.h"
#include "tenon/sdk/sampler.h"

namespace tenon::frequency_presence {

class FrequencyPresence : public sdk::Sampler<FrequencyPresence> {
 public:
  static constexpr const char* kName = "frequency_presence";
  static constexpr const char* kDoc = "Lowers tokens by how often, and whether at all, the text holds them";
  static constexpr auto kParams = sdk::params(sdk::real({.name = "frequency",
                                                         .doc = "Subtracted for every time the text holds the token",
                                                         .value = 0,
                                                         .min = -100,
                                                         .max = 100,
                                                         .flags = TENON_PARAM_PER_REQUEST}),
                                              sdk::real({.name = "presence",
                                                         .doc = "Subtracted once if the text holds the token",
                                                         .value = 0,
                                                         .min = -100,
                                                         .max = 100,
                                                         .flags = TENON_PARAM_PER_REQUEST}));
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    float frequency, presence;
  };

  FrequencyPresence(const sdk::Params&, const sdk::Env&) {}

  uint64_t state_bytes(uint32_t vocab) const { return sdk::cpu::count_bytes(vocab); }
  Record encode(const sdk::Params& request) const {
    return {static_cast<float>(request.real("frequency")), static_cast<float>(request.real("presence"))};
  }
  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;
  void record_accept(const tenon_candidates& given, const tenon_sampling& s, sdk::Recorder& r) const;
};

}  // namespace tenon::frequency_presence
