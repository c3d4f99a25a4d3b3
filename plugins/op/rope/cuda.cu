#include "plugin.h"
#include "tenon/cuda/small_op.cuh"

namespace tenon::op {
namespace {

// A thread turns one pair; what does not turn is copied.
__global__ void kernel(cuda::RowOp op) {
  cuda::wait();
  const sdk::RopePairs turning = Rope::pairs_of(op.args.i);
  const sdk::Heads of(op.args.i);
  const int32_t half = static_cast<int32_t>(turning.half()), dim = of.k_dim;
  const int32_t pairs = dim - half;  // a head has so many: first pairs that turn, then elements that stay
  const int64_t heads = of.q + of.kv, turned = heads * pairs;
  const int64_t rest = op.x == op.y ? 0 : op.args.columns - heads * dim;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (uint32_t r = blockIdx.y; r < op.live_rows(); r += gridDim.y) {
    const float* x = op.x + r * op.args.x_stride;
    float* y = op.y + r * op.args.y_stride;
    const float* angles = op.t[Rope::kTable] + int64_t{op.step[Rope::kPos][r]} * turning.rotated;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < turned + rest; i += stride) {
      if (i >= turned) {
        const int64_t at = heads * dim + i - turned;
        y[at] = x[at];
        continue;
      }
      const int64_t base = i / pairs * dim;
      const auto pair = static_cast<uint32_t>(i % pairs);
      if (pair >= turning.half()) {
        y[base + half + pair] = x[base + half + pair];
        continue;
      }
      const int64_t u = base + turning.first(pair), v = base + turning.second(pair);
      const float first = x[u], second = x[v], c = angles[2 * pair], s = angles[2 * pair + 1];
      y[u] = first * c - second * s;
      y[v] = first * s + second * c;
    }
  }
}

}  // namespace

void Rope::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_rows<&kernel>({.name = "rope", .steps = {TENON_STEP_POS}}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Rope);
