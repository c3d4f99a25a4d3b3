#include "plugin.h"
#include "tenon/cuda/small_op.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::op {
namespace {

// A warp takes a head of Q or K; then the values are copied.
__global__ void kernel(cuda::RowOp op) {
  cuda::wait();
  const sdk::Heads of(op.args.i);
  const int32_t heads = of.q + of.kv, dim = of.k_dim;
  const uint32_t lane = threadIdx.x % 32;
  const auto thread = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  const auto threads = static_cast<int32_t>(gridDim.x * blockDim.x);
  for (uint32_t r = blockIdx.y; r < op.live_rows(); r += gridDim.y) {
    const float* row = op.x + r * op.args.x_stride;
    float* out = op.y + r * op.args.y_stride;
    for (int32_t h = thread / 32; h < heads; h += threads / 32) {
      const float* x = row + int64_t{h} * dim;
      const float* weight = op.t[h < of.q ? QkNorm::kQWeight : QkNorm::kKWeight];
      float sum = 0;
      for (auto i = static_cast<int32_t>(lane); i < dim; i += 32) sum += x[i] * x[i];
      const float scale = rsqrtf(cuda::warp_sum(sum) / static_cast<float>(dim) + op.args.f[QkNorm::kEps]);
      for (auto i = static_cast<int32_t>(lane); i < dim; i += 32) out[int64_t{h} * dim + i] = x[i] * scale * weight[i];
    }
    if (row == out) continue;
    for (int64_t i = int64_t{heads} * dim + thread; i < op.args.columns; i += threads) out[i] = row[i];
  }
}

}  // namespace

void QkNorm::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_rows<&kernel>({.name = "qk_norm"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::QkNorm);
