// A selector that chooses a token outside of the vocabulary, or none.
#include "tenon/sdk/sampler.h"

namespace tenon::bad {

struct ChoosesWrong : sdk::Sampler<ChoosesWrong> {
  static constexpr const char* kName = "chooses_wrong";
  static constexpr const char* kDoc = "Chooses no proper token.";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "token", .doc = "What it chooses; -2 = nothing.", .value = -1, .min = -2, .max = 1 << 30}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  struct Record {
    int32_t none;
  };
  struct Args {
    int32_t token;
  };

  ChoosesWrong(const sdk::Params& params, const sdk::Env&) : token_(static_cast<int32_t>(params.integer("token"))) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_select(const tenon_candidates&, const tenon_sampling& s, sdk::Recorder& r) {
    if (token_ == -2) return;
    const tenon_operand operands[] = {{s.next, TENON_WRITE}};
    r.emit<&choose>({.name = "choose", .operands = operands, .chunks = {r.bounds().out_rows}}, Args{token_});
  }

 private:
  static void choose(const Args& a, const sdk::Part& part) {
    for (uint32_t row = part.begin(); row < part.end(); ++row) part.ptr<int32_t>(0)[row] = a.token;
  }

  int32_t token_;
};

}  // namespace tenon::bad

using tenon::bad::ChoosesWrong;
TENON_PLUGIN(ChoosesWrong);
