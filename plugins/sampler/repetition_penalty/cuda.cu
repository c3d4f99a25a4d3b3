#include "plugin.h"
#include "tenon/cuda/penalty.cuh"

namespace tenon::repetition_penalty {
namespace {

struct Penalty {
  static __device__ bool changes(const RepetitionPenalty::Record& record) { return record.penalty != 1; }
  __device__ float operator()(const RepetitionPenalty::Record& record, float logit, uint32_t) const {
    return logit > 0 ? logit / record.penalty : logit * record.penalty;
  }
};

}  // namespace

void RepetitionPenalty::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  cuda::record_penalty<Record, Penalty>("penalize", c, s, r);
}

void RepetitionPenalty::record_accept(const tenon_candidates&, const tenon_sampling& s, sdk::Recorder& r) const {
  cuda::record_count_accepted(s.state, r);
}

}  // namespace tenon::repetition_penalty

TENON_PLUGIN(tenon::repetition_penalty::RepetitionPenalty);
