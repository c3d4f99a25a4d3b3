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

void FrequencyPresence::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  cpu::record_penalty<penalize>("penalize", c, s, r);
}

void FrequencyPresence::record_accept(const tenon_candidates&, const tenon_sampling& s, sdk::Recorder& r) const {
  cpu::record_count_accepted(s.state, r);
}

}  // namespace tenon::frequency_presence

TENON_PLUGIN(tenon::frequency_presence::FrequencyPresence);
