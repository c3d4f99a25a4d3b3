// Draws a token from softmax(logits) as the argmax of p / q, q exponential with mean 1 (the Gumbel trick).
//
// Candidate `id` at position `pos` gets the word id % 4 of Philox4x32-10 with the key RNG[slot] and the counter
// (pos, 0, id / 4, 0). A word w stands for u = (floor(w / 2) + 0.5) / 2^31, and q = -log(1 - u). The draw is a function
// of key, position, ids and logits: neither form, nor order, nor the other rows matter, so that verification of drafts
// by comparing tokens is exact.
#pragma once

#include "tenon/sdk/sampler.h"

namespace tenon::categorical {

class Categorical : public sdk::Sampler<Categorical> {
 public:
  static constexpr const char* kName = "categorical";
  static constexpr const char* kDoc = "A random token by its probability, reproducible by seed and position";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    uint32_t unused;  // the host keeps a record of every sampler
  };

  Categorical(const sdk::Params&, const sdk::Env& env);

  Record encode(const sdk::Params&) const { return {}; }
  void record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;

 private:
  uint32_t kernel_;  // the number of the device's kernel, by instruction set
};

}  // namespace tenon::categorical
