#include "plugin.h"
#include "tenon/cuda/small_op.cuh"

namespace tenon::op {
namespace {

// A block takes a row; the variance is summed around the mean.
__global__ void kernel(cuda::RowOp op) {
  cuda::wait();
  const int64_t n = op.args.columns;
  for (uint32_t r = blockIdx.y; r < op.live_rows(); r += gridDim.y) {
    const float* x = op.x + r * op.args.x_stride;
    float* y = op.y + r * op.args.y_stride;
    float sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    const float mean = cuda::block_sum(sum) / static_cast<float>(n);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = rsqrtf(cuda::block_sum(squares) / static_cast<float>(n) + op.args.f[LayerNorm::kEps]);
    const float *weight = op.t[LayerNorm::kWeight], *bias = op.t[LayerNorm::kBias];
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
  }
}

}  // namespace

void LayerNorm::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_rows<&kernel, true>({.name = "layer_norm"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::LayerNorm);
