#include "plugin.h"
#include "tenon/cuda/small_op.cuh"

namespace tenon::op {
namespace {

// A block takes a row.
__global__ void kernel(cuda::RowOp op) {
  cuda::wait();
  const int64_t n = op.args.columns;
  for (uint32_t r = blockIdx.y; r < op.live_rows(); r += gridDim.y) {
    const float* x = op.x + r * op.args.x_stride;
    float* y = op.y + r * op.args.y_stride;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[i] * x[i];
    const float scale = rsqrtf(cuda::block_sum(sum) / static_cast<float>(n) + op.args.f[RmsNorm::kEps]);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * scale * op.t[RmsNorm::kWeight][i];
  }
}

}  // namespace

void RmsNorm::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_rows<&kernel, true>({.name = "rms_norm"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::RmsNorm);
