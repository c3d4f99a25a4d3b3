#include "plugin.h"
#include "tenon/cuda/small_op.cuh"

namespace tenon::op {
namespace {

struct Of {
  static __device__ float at(const cuda::RowOp& op, uint32_t row, int64_t i, const float* x) {
    const int32_t expert = __float_as_int(*op.row_of(ExpertBias::kExpert, row));
    if (expert < 0 || expert >= op.args.i[ExpertBias::kExperts]) return x[i];
    return x[i] + op.t[ExpertBias::kBias][expert * op.args.columns + i];
  }
};

}  // namespace

void ExpertBias::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_elements<Of>({.name = "expert_bias", .has_rows = true}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ExpertBias);
