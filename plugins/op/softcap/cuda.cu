#include "plugin.h"
#include "tenon/cuda/small_op.cuh"

namespace tenon::op {
namespace {

struct Of {
  static __device__ float at(const cuda::RowOp& op, uint32_t, int64_t i, const float* x) {
    const float cap = op.args.f[Softcap::kCap];
    return cap * tanhf(x[i] / cap);
  }
};

}  // namespace

void Softcap::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_elements<Of>({.name = "softcap"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Softcap);
