#include "plugin.h"

namespace tenon::frequency_presence {
namespace {

namespace cpu = sdk::cpu;

void penalize(const cpu::CandidateGrid& g, const sdk::Part& part) {
  cpu::penalize<FrequencyPresence::Record>(
      g, part, [](const FrequencyPresence::Record& record, float logit, uint32_t count) {
        return logit - (record.frequency * static_cast<float>(count) + record.presence);
      });
}

}  // namespace

void FrequencyPresence::record_apply(tenon_candidates& c, tenon_tid params, tenon_tid state, sdk::Recorder& r) const {
  cpu::record_penalty<penalize>("penalize", c, params, state, r);
}

void FrequencyPresence::record_accept(tenon_tid state, sdk::Recorder& r) const {
  cpu::record_count_accepted(state, r);
}

}  // namespace tenon::frequency_presence

TENON_PLUGIN(tenon::frequency_presence::FrequencyPresence);
