#include "plugin.h"
#include "tenon/cuda/penalty.cuh"

namespace tenon::repetition_penalty {
namespace {

struct Penalty {
  __device__ float operator()(const RepetitionPenalty::Record& record, float logit, uint32_t) const {
    return logit > 0 ? logit / record.penalty : logit * record.penalty;
  }
};

}  // namespace

void RepetitionPenalty::record_apply(tenon_candidates& c, tenon_tid params, tenon_tid state, sdk::Recorder& r) const {
  cuda::record_penalty<Record, Penalty>("penalize", c, params, state, r);
}

void RepetitionPenalty::record_accept(tenon_tid state, sdk::Recorder& r) const {
  cuda::record_count_accepted(state, r);
}

}  // namespace tenon::repetition_penalty

TENON_PLUGIN(tenon::repetition_penalty::RepetitionPenalty);
