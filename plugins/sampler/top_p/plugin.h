// Keeps the smallest set of the most likely candidates whose probabilities sum to p or more, at least one. Of equal
// logits the lower ids come first.
//
// Probabilities are summed in integers, e^(l - max) in units of 2^-40, so that the set depends neither on form, order
// nor on how the work is cut.
#pragma once

#include "tenon/sdk/sampler.h"

namespace tenon::top_p {

class TopP : public sdk::Sampler<TopP> {
 public:
  static constexpr const char* kName = "top_p";
  static constexpr const char* kDoc = "The most likely tokens that together reach the probability p";
  static constexpr auto kParams = sdk::params(sdk::real({.name = "p",
                                                         .doc = "Probability to reach; 1 keeps all",
                                                         .value = 0.95,
                                                         .min = 0,
                                                         .max = 1,
                                                         .flags = TENON_PARAM_PER_REQUEST}));
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    double p;
  };

  TopP(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& request) const { return {request.real("p")}; }
  // Form, order and flags stay; SPARSE rows become shorter.
  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;
};

}  // namespace tenon::top_p
