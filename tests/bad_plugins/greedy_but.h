// This selector takes the largest logit of every live row, and does something beside it: T::spoil(row, part).
#pragma once

#include <algorithm>

#include "good_sampler.h"

namespace tenon::bad {

template <class T>
struct GreedyBut : sdk::Sampler<T> {
  static constexpr const char* kName = "good";
  static constexpr const char* kDoc = "The largest logit, and more.";
  static constexpr auto kParams = Good::kParams;
  static constexpr uint32_t kInForms = TENON_DENSE;
  using Record = Good::Record;
  using Args = Good::Args;
  enum { kLogits, kNext, kLive };

  GreedyBut(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& params) const { return {params.integer("k")}; }
  void record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& rec) {
    const uint32_t rows = rec.bounds().out_rows;
    const tenon_operand operands[] = {
        {c.logits, TENON_READ}, {s.next, TENON_WRITE}, {rec.step(TENON_STEP_LIVE), TENON_READ}};
    rec.emit<&select>({.name = "select", .operands = operands, .chunks = {rows}, .scratch_bytes = rows * 4ULL},
                      Args{c.vocab});
  }

 private:
  static void select(const Args& args, const sdk::Part& part) {
    const uint32_t live = part.ptr<const uint32_t>(kLive)[2];
    for (uint32_t row = part.begin(); row < std::min(part.end(), live); ++row) {
      const float* logits = part.ptr<const float>(kLogits) + size_t{row} * args.vocab;
      part.ptr<int32_t>(kNext)[row] = static_cast<int32_t>(std::max_element(logits, logits + args.vocab) - logits);
      T::spoil(row, part);
    }
  }
};

}  // namespace tenon::bad
