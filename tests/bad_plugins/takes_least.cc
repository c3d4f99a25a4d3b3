// This selector takes the smallest logit that is in.
#include <algorithm>
#include <limits>

#include "good_sampler.h"

namespace tenon::bad {

struct TakesLeast : sdk::Sampler<TakesLeast> {
  static constexpr const char* kName = "good";
  static constexpr const char* kDoc = "The smallest logit.";
  static constexpr auto kParams = Good::kParams;
  static constexpr uint32_t kInForms = TENON_DENSE;
  using Record = Good::Record;
  using Args = Good::Args;

  TakesLeast(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& params) const { return {params.integer("k")}; }
  void record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& rec) {
    const tenon_operand operands[] = {
        {c.logits, TENON_READ}, {s.next, TENON_WRITE}, {rec.step(TENON_STEP_LIVE), TENON_READ}};
    rec.emit<&select>({.name = "select", .operands = operands, .chunks = {rec.bounds().out_rows}}, Args{c.vocab});
  }

 private:
  static void select(const Args& args, const sdk::Part& part) {
    constexpr float kOut = -std::numeric_limits<float>::infinity();
    const uint32_t live = part.ptr<const uint32_t>(2)[2];
    for (uint32_t row = part.begin(); row < std::min(part.end(), live); ++row) {
      const float* logits = part.ptr<const float>(0) + size_t{row} * args.vocab;
      uint32_t least = 0;
      for (uint32_t i = 1; i < args.vocab; ++i) {
        if (logits[i] > kOut && (logits[least] == kOut || logits[i] < logits[least])) least = i;
      }
      part.ptr<int32_t>(1)[row] = static_cast<int32_t>(least);
    }
  }
};

}  // namespace tenon::bad

using tenon::bad::TakesLeast;
TENON_PLUGIN(TakesLeast);
