#include "plugin.h"
#include "tenon/cuda/small_op.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::op {
namespace {

// This is the softmax of a row's scores, of all experts or of the chosen ones. Each warp has it for itself.
class Weights {
 public:
  __device__ Weights(const cuda::RowOp& op, uint32_t row)
      : experts_(op.row_of(ExpertSum::kExperts, row)), score_(op.row_of(ExpertSum::kScores, row)) {
    const int32_t *i = op.args.i, first = expert(0);
    const bool renormalised = i[ExpertSum::kRenormalised] != 0;
    const int32_t n = first < 0 ? 0 : i[renormalised ? ExpertSum::kChosen : ExpertSum::kCount];
    if (first >= 0) largest_ = score_[first];
    for (int32_t k = static_cast<int32_t>(threadIdx.x % 32); k < n; k += 32) {
      const int32_t e = renormalised ? expert(k) : k;
      if (e >= 0) sum_ += expf(score_[e] - largest_);
    }
    sum_ = cuda::warp_sum(sum_);
  }
  __device__ float operator[](int32_t rank) const {
    const int32_t e = expert(rank);
    return e < 0 ? 0 : expf(score_[e] - largest_) / sum_;
  }

 private:
  __device__ int32_t expert(int32_t rank) const { return __float_as_int(experts_[rank]); }

  const float *experts_, *score_;
  float largest_ = 0, sum_ = 0;
};

__global__ void kernel(cuda::RowOp op) {
  cuda::wait();
  const uint32_t live = op.live_rows();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x, columns = op.args.y_columns;
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    const float *x = op.x + row * op.args.x_stride, *addend = op.row_of(ExpertSum::kAddend, row);
    const Weights weights(op, row);
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < columns; i += stride) {
      float sum = addend[i];
      for (int32_t rank = 0; rank < op.args.i[ExpertSum::kChosen]; ++rank) {
        sum += weights[rank] * x[rank * columns + i];
      }
      op.y[row * op.args.y_stride + i] = sum;
    }
  }
}

}  // namespace

void ExpertSum::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  cuda::record_rows<&kernel>({.name = "expert_sum", .has_rows = true}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ExpertSum);
