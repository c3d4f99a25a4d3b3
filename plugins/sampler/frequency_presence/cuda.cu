#include "plugin.h"
#include "tenon/cuda/penalty.cuh"

namespace tenon::frequency_presence {
namespace {

struct Penalty {
  __device__ float operator()(const FrequencyPresence::Record& record, float logit, uint32_t count) const {
    return logit - (record.frequency * static_cast<float>(count) + record.presence);
  }
};

}  // namespace

void FrequencyPresence::record_apply(tenon_candidates& c, tenon_tid params, tenon_tid state, sdk::Recorder& r) const {
  cuda::record_penalty<Record, Penalty>("penalize", c, params, state, r);
}

void FrequencyPresence::record_accept(tenon_tid state, sdk::Recorder& r) const {
  cuda::record_count_accepted(state, r);
}

}  // namespace tenon::frequency_presence

TENON_PLUGIN(tenon::frequency_presence::FrequencyPresence);
