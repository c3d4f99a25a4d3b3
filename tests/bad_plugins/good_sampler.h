// This selector is as small as one can be: it takes the largest logit, one row a chunk.
#pragma once

#include "tenon/sdk/sampler.h"

namespace tenon::bad {

template <class T>
struct GoodSampler : sdk::Sampler<T> {
  static constexpr const char* kName = "good";
  static constexpr const char* kDoc = "The largest logit.";
  static constexpr auto kParams =
      sdk::params(sdk::integer({.name = "k", .doc = "Says nothing.", .value = 2, .min = 1, .max = 8}),
                  sdk::text({.name = "mode", .doc = "Says nothing either.", .value = "calm", .choices = "calm|wild"}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  struct Record {
    int64_t k;
  };
  struct Args {
    uint32_t vocab;
  };

  GoodSampler(const sdk::Params& params, const sdk::Env&) : k_(params.integer("k")) {}

  Record encode(const sdk::Params& params) const { return {params.integer("k")}; }
  void record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& rec) {
    const tenon_operand operands[] = {{c.logits, TENON_READ}, {s.next, TENON_WRITE}};
    rec.emit<&select>({.name = "select", .operands = operands, .chunks = {rec.bounds().out_rows}}, Args{c.vocab});
  }

 private:
  static void select(const Args& args, const sdk::Part& part) {
    for (uint32_t row = part.begin(); row < part.end(); ++row) {
      const float* logits = part.ptr<float>(0) + size_t{row} * args.vocab;
      uint32_t best = 0;
      for (uint32_t i = 1; i < args.vocab; ++i) {
        if (logits[i] > logits[best]) best = i;
      }
      part.ptr<int32_t>(1)[row] = static_cast<int32_t>(best);
    }
  }

  int64_t k_;
};

struct Good : GoodSampler<Good> {
  using GoodSampler::GoodSampler;
};

}  // namespace tenon::bad
