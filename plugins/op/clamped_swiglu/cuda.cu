#include "plugin.h"
#include "tenon/cuda/small_op.cuh"

namespace tenon::op {
namespace {

struct Of {
  static __device__ float at(const cuda::RowOp& op, uint32_t, int64_t i, const float* x) {
    const float alpha = op.args.f[ClampedSwiglu::kAlpha], limit = op.args.f[ClampedSwiglu::kLimit];
    const float second = x[op.args.columns / 2 + i];
    // A comparison with NaN is false, so that NaN stays what it is.
    const float gate = x[i] > limit ? limit : x[i];
    const float up = second > limit ? limit : second < -limit ? -limit : second;
    return gate / (1.0f + expf(-alpha * gate)) * (up + 1.0f);
  }
};

}  // namespace

void ClampedSwiglu::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_elements<Of>({.name = "clamped_swiglu"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ClampedSwiglu);
