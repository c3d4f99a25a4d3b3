#include "plugin.h"
#include "tenon/cuda/small_op.cuh"
#include "tenon/sdk/experts.h"

namespace tenon::op {
namespace {

// A block has a whole row, of which one thread computes the weight.
__global__ void kernel(cuda::RowOp op) {
  cuda::wait();
  __shared__ float weight;
  const int32_t* i = op.args.i;
  const uint32_t live = op.live_rows();
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    if (threadIdx.x == 0) {
      weight = sdk::weight_of_rank(op.x + row * op.args.x_stride, op.args.columns, i[ExpertWeight::kRank],
                                   i[ExpertWeight::kChosen], i[ExpertWeight::kRenormalised] != 0);
    }
    __syncthreads();
    for (int64_t c = threadIdx.x; c < op.args.y_columns; c += blockDim.x) op.y[row * op.args.y_stride + c] = weight;
    __syncthreads();
  }
}

}  // namespace

void ExpertWeight::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_rows<&kernel, true>({.name = "expert_weight"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ExpertWeight);
