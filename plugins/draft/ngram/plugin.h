// Proposes what followed the text's last words when they were last written (prompt look-up): of the earlier places
// whose preceding tokens equal the last max_ngram tokens of the text, or as many as possible, but at least min_ngram,
// the most recent; then the k tokens after it. A proposal that runs into the end of the text goes on with the proposed
// tokens, as in a loop.
//
// It keeps nothing: a proposal reads the text once, backwards, and stops at a place that matches max_ngram tokens.
#pragma once

#include <cstdint>
#include <span>

#include "tenon/sdk/draft.h"

namespace tenon::ngram {

class Ngram : public sdk::Draft<Ngram> {
 public:
  static constexpr const char* kName = "ngram";
  static constexpr const char* kDoc = "What followed the last tokens earlier in the text (prompt look-up)";
  static constexpr auto kParams = sdk::params(
      sdk::integer(
          {.name = "k", .doc = "Tokens to propose for a step", .value = 5, .min = 1, .max = 64, .unit = "tokens"}),
      sdk::integer({.name = "min_ngram",
                    .doc = "Fewest last tokens that must have occurred before",
                    .value = 1,
                    .min = 1,
                    .max = 64,
                    .unit = "tokens"}),
      sdk::integer({.name = "max_ngram",
                    .doc = "Most last tokens to look for; more is a surer match",
                    .value = 3,
                    .min = 1,
                    .max = 64,
                    .unit = "tokens"}));

  // Throws Failed if min_ngram is greater than max_ngram.
  Ngram(const sdk::Params& params, const sdk::Env&);

  uint32_t max_tokens() const { return k_; }
  uint32_t propose(uint32_t slot, std::span<const int32_t> tokens, std::span<int32_t> out) const;

 private:
  uint32_t k_, min_, max_;
};

}  // namespace tenon::ngram
