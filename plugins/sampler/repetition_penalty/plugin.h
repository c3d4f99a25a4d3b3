// Divides the positive logits of tokens that the sequence holds, prompt included, and multiplies the others.
// A row sees what was accepted and its own tokens of this step, up its parents.
#pragma once

#include "tenon/sdk/cpu/penalty.h"
#include "tenon/sdk/sampler.h"

namespace tenon::repetition_penalty {

class RepetitionPenalty : public sdk::Sampler<RepetitionPenalty> {
 public:
  static constexpr const char* kName = "repetition_penalty";
  static constexpr const char* kDoc = "Makes tokens less likely that the text holds already";
  static constexpr auto kParams =
      sdk::params(sdk::real({.name = "penalty",
                             .doc = "Divides positive logits, multiplies others; 1 changes nothing",
                             .value = 1.1,
                             .min = 0.01,
                             .max = 100,
                             .flags = TENON_PARAM_PER_REQUEST}));
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    float penalty;
  };

  RepetitionPenalty(const sdk::Params&, const sdk::Env&) {}

  uint64_t state_bytes(uint32_t vocab) const { return sdk::cpu::count_bytes(vocab); }
  Record encode(const sdk::Params& request) const { return {static_cast<float>(request.real("penalty"))}; }
  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;
  void record_accept(const tenon_candidates& given, const tenon_sampling& s, sdk::Recorder& r) const;
};

}  // namespace tenon::repetition_penalty
