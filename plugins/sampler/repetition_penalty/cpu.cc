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

void RepetitionPenalty::record_apply(tenon_candidates& c, tenon_tid params, tenon_tid state, sdk::Recorder& r) const {
  cpu::record_penalty<penalize>("penalize", c, params, state, r);
}

void RepetitionPenalty::record_accept(tenon_tid state, sdk::Recorder& r) const {
  cpu::record_count_accepted(state, r);
}

}  // namespace tenon::repetition_penalty

TENON_PLUGIN(tenon::repetition_penalty::RepetitionPenalty);
