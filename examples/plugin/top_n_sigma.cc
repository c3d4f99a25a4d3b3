// sampler.top_n_sigma: keeps the tokens whose logit lies within n standard deviations of the largest (Tang et al. 2024,
// "Top-n sigma: Not All Logits Are You Need", arXiv:2411.07641). What is kept does not depend on the temperature.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/sdk/live.h"
#include "tenon/sdk/sampler.h"

namespace sdk = tenon::sdk;

namespace {

struct Record {  // what a sequence's request asks for
  float n;
};
struct Args {
  uint32_t vocab;
};
enum Operand { kOut, kIn, kRecords, kLive, kOutRow, kSlot, kOperands };

void keep_near_the_largest(const Args& args, const sdk::Part& part) {
  constexpr float kGone = -std::numeric_limits<float>::infinity();
  const uint32_t live_rows = part.ptr<const uint32_t>(kLive)[sdk::kLiveOutRows];
  for (uint32_t row = part.begin(); row < std::min(part.end(), live_rows); ++row) {
    const int32_t slot = part.ptr<const int32_t>(kSlot)[part.ptr<const int32_t>(kOutRow)[row]];
    const float n = part.ptr<const Record>(kRecords)[slot].n;
    const float* logits = part.ptr<const float>(kIn) + size_t{row} * args.vocab;
    float* out = part.ptr<float>(kOut) + size_t{row} * args.vocab;

    // Tokens that an earlier processor put out have no part in the deviation.
    double count = 0, sum = 0, squares = 0;
    float largest = kGone;
    for (uint32_t i = 0; i < args.vocab; ++i) {
      if (logits[i] == kGone) continue;
      largest = std::max(largest, logits[i]);
      count += 1;
      sum += logits[i];
      squares += double{logits[i]} * logits[i];
    }
    const double mean = sum / count;
    const double sigma = std::sqrt(std::max(0.0, squares / count - mean * mean));
    for (uint32_t i = 0; i < args.vocab; ++i) out[i] = logits[i] >= largest - n * sigma ? logits[i] : kGone;
  }
}

class TopNSigma : public sdk::Sampler<TopNSigma> {
 public:
  static constexpr const char* kName = "top_n_sigma";
  static constexpr const char* kDoc = "Keeps tokens whose logit is within n standard deviations of the largest";
  static constexpr auto kParams = sdk::params(
      sdk::real({.name = "n", .doc = "Standard deviations below the largest logit", .value = 1, .min = 0, .max = 100}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  using Record = ::Record;

  TopNSigma(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& request) const { return {static_cast<float>(request.real("n"))}; }

  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) {
    const uint32_t rows = r.bounds().out_rows;
    const tenon_tid out = r.temp(sdk::tensor(TENON_F32, {rows, c.vocab}));
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kOperands, {{kOut, out, TENON_WRITE},
                                     {kIn, c.logits, TENON_READ},
                                     {kRecords, s.params, TENON_READ},
                                     {kLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                     {kOutRow, r.step(TENON_STEP_OUT_ROW), TENON_READ},
                                     {kSlot, r.step(TENON_STEP_SLOT), TENON_READ}});
    tenon_cost cost{};
    cost.read[sdk::kCostPerRow] = cost.written[sdk::kCostPerRow] = 4.0 * c.vocab;
    cost.flops[sdk::kCostPerRow] = 6.0 * c.vocab;
    r.emit<keep_near_the_largest>({.name = "keep_near", .operands = operands, .chunks = {rows}, .cost = cost},
                                  Args{c.vocab});
    c.logits = out;
  }
};

}  // namespace

TENON_PLUGIN(TopNSigma);
