#include "plugin.h"

namespace tenon::repetition_penalty {
namespace {

namespace cpu = sdk::cpu;

void penalize(const cpu::CandidateGrid& g, const sdk::Part& part) {
  cpu::penalize<RepetitionPenalty::Record>(g, part, [](const RepetitionPenalty::Record& record, float logit, uint32_t) {
    return logit > 0 ? logit / record.penalty : logit * record.penalty;
  });
}

}  // namespace

void RepetitionPenalty::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  cpu::record_penalty<penalize>("penalize", c, s, r);
}

void RepetitionPenalty::record_accept(const tenon_candidates&, const tenon_sampling& s, sdk::Recorder& r) const {
  cpu::record_count_accepted(s.state, r);
}

}  // namespace tenon::repetition_penalty

TENON_PLUGIN(tenon::repetition_penalty::RepetitionPenalty);
