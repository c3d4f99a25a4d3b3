// Keeps the candidates whose probability is at least p times that of the most likely one, compared as logits:
// l >= max + log(p) in double.
#pragma once

#include <cmath>

#include "tenon/sdk/sampler.h"

namespace tenon::min_p {

class MinP : public sdk::Sampler<MinP> {
 public:
  static constexpr const char* kName = "min_p";
  static constexpr const char* kDoc = "Tokens at least p times as likely as the most likely one";
  static constexpr auto kParams = sdk::params(sdk::real({.name = "p",
                                                         .doc = "Share of the greatest probability; 0 keeps all",
                                                         .value = 0.05,
                                                         .min = 0,
                                                         .max = 1,
                                                         .flags = TENON_PARAM_PER_REQUEST}));
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    double log_p;  // minus infinity: it is off
  };

  MinP(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& request) const { return {std::log(request.real("p"))}; }
  // Form, order and flags stay; SPARSE rows become shorter.
  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;
};

}  // namespace tenon::min_p
