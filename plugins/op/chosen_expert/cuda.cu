#include "plugin.h"
#include "tenon/cuda/small_op.cuh"
#include "tenon/sdk/experts.h"

namespace tenon::op {
namespace {

struct Of {
  static __device__ float at(const cuda::RowOp& op, uint32_t, int64_t, const float* x) {
    return __int_as_float(sdk::expert_of_rank(x, op.args.columns, op.args.i[ChosenExpert::kRank]));
  }
};

}  // namespace

void ChosenExpert::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_elements<Of>({.name = "chosen_expert"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ChosenExpert);
