// This processor takes minus infinity for a number like others, and cools it down to one.
#include <algorithm>

#include "good_sampler.h"

namespace tenon::bad {

struct RaisesBanned : sdk::Sampler<RaisesBanned> {
  static constexpr const char* kName = "good";
  static constexpr const char* kDoc = "No logit below -100.";
  static constexpr auto kParams = Good::kParams;
  static constexpr uint32_t kInForms = TENON_DENSE;
  struct Record {
    int64_t unused;
  };
  struct Args {
    uint32_t vocab;
  };

  RaisesBanned(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_apply(tenon_candidates& c, const tenon_sampling&, sdk::Recorder& rec) {
    const uint32_t rows = rec.bounds().out_rows;
    const tenon_tid out = rec.temp(sdk::tensor(TENON_F32, {rows, c.vocab}));
    const tenon_operand operands[] = {
        {out, TENON_WRITE}, {c.logits, TENON_READ}, {rec.step(TENON_STEP_LIVE), TENON_READ}};
    rec.emit<&raise>({.name = "raise", .operands = operands, .chunks = {rows}}, Args{c.vocab});
    c.logits = out;
  }

 private:
  static void raise(const Args& args, const sdk::Part& part) {
    const uint32_t live = part.ptr<const uint32_t>(2)[2];
    for (uint32_t row = part.begin(); row < std::min(part.end(), live); ++row) {
      const float* in = part.ptr<const float>(1) + size_t{row} * args.vocab;
      float* out = part.ptr<float>(0) + size_t{row} * args.vocab;
      for (uint32_t i = 0; i < args.vocab; ++i) out[i] = std::max(in[i], -100.0F);
    }
  }
};

}  // namespace tenon::bad

using tenon::bad::RaisesBanned;
TENON_PLUGIN(RaisesBanned);
