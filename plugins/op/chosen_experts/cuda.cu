#include "plugin.h"
#include "tenon/cuda/small_op.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::op {
namespace {

constexpr uint32_t kNan = 0xFFFF0000;  // above the order of infinity

// Returns a number above 0 that is greater for the higher rank. The low half makes the first of equal scores the
// greatest; 0 is added since -0 and 0 are equal.
__device__ uint64_t rank_key(float score, uint32_t expert) {
  const uint32_t bits = __float_as_uint(score + 0.0F);
  const uint32_t ordered = isnan(score) ? kNan : bits >> 31 != 0 ? ~bits : bits | 1U << 31;
  return uint64_t{ordered} << 32 | ~expert;
}

// A row's first warp finds its experts, rank by rank.
__global__ void kernel(cuda::RowOp op) {
  cuda::wait();
  if (threadIdx.x >= 32) return;
  const uint32_t live = op.live_rows();
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    const float* score = op.x + row * op.args.x_stride;
    uint64_t found = UINT64_MAX;
    for (int32_t rank = 0; rank < op.args.i[ChosenExperts::kChosen]; ++rank) {
      uint64_t best = 0;
      for (uint32_t e = threadIdx.x; e < op.args.columns; e += 32) {
        const uint64_t key = rank_key(score[e], e);
        if (key < found && key > best) best = key;
      }
      found = cuda::over_warp(best, [](uint64_t a, uint64_t b) { return max(a, b); });
      const int32_t expert = found == 0 ? -1 : static_cast<int32_t>(~static_cast<uint32_t>(found));
      if (threadIdx.x == 0) op.y[row * op.args.y_stride + rank] = __int_as_float(expert);
    }
  }
}

}  // namespace

void ChosenExperts::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_rows<&kernel, true>({.name = "chosen_experts"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ChosenExperts);
