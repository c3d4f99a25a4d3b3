// Chooses the candidate with the greatest logit: of equal ones the lowest id, never NaN, 0 if no candidate is left.
#pragma once

#include "tenon/sdk/sampler.h"

namespace tenon::greedy {

class Greedy : public sdk::Sampler<Greedy> {
 public:
  static constexpr const char* kName = "greedy";
  static constexpr const char* kDoc = "The most likely token";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    uint32_t unused;  // the host keeps a record of every sampler
  };

  Greedy(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;
};

}  // namespace tenon::greedy
