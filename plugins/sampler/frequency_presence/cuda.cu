#include "plugin.h"
#include "tenon/cuda/penalty.cuh"

namespace tenon::frequency_presence {
namespace {

struct Penalty {
  static __device__ bool changes(const FrequencyPresence::Record& record) {
    return record.frequency != 0 || record.presence != 0;
  }
  __device__ float operator()(const FrequencyPresence::Record& record, float logit, uint32_t count) const {
    return logit - (record.frequency * static_cast<float>(count) + record.presence);
  }
};

}  // namespace

void FrequencyPresence::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  cuda::record_penalty<Record, Penalty>("penalize", c, s, r);
}

void FrequencyPresence::record_accept(const tenon_candidates&, const tenon_sampling& s, sdk::Recorder& r) const {
  cuda::record_count_accepted(s.state, r);
}

}  // namespace tenon::frequency_presence

TENON_PLUGIN(tenon::frequency_presence::FrequencyPresence);
