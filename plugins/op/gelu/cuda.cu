#include "plugin.h"
#include "tenon/cuda/small_op.cuh"

namespace tenon::op {
namespace {

// kSlope is sqrt(2 / pi).
constexpr float kSlope = 0.7978845608028654f, kCubic = 0.044715f;

struct Of {
  static __device__ float at(const cuda::RowOp&, uint32_t, int64_t i, const float* x) {
    const float a = x[i];
    return 0.5f * a * (1.0f + tanhf(kSlope * (a + kCubic * a * a * a)));
  }
};

}  // namespace

void Gelu::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_elements<Of>({.name = "gelu"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Gelu);
