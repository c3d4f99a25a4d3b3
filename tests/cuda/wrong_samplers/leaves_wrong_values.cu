#include "bad_plugins/leaves_wrong_values.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::bad {
namespace {

using Args = LeavesWrongValues::Args;
constexpr uint32_t kThreads = 256, kCap = LeavesWrongValues::kCap;

__global__ void leave_kernel(Args a, float* logits, int32_t* id, int32_t* count) {
  cuda::wait();
  const uint32_t row = blockIdx.x;
  for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) logits[size_t{row} * a.width + i] = a.logit;
  if (a.width != kCap) return;
  for (uint32_t i = threadIdx.x; i < kCap; i += blockDim.x) id[row * kCap + i] = a.id;
  if (threadIdx.x == 0) count[row] = a.count;
}

void leave(const Args& a, const cuda::Launch& l) {
  l(&leave_kernel, {.blocks = {a.rows}, .threads = {kThreads}}, a, l.ptr<float>(LeavesWrongValues::kLogits),
    l.ptr<int32_t>(LeavesWrongValues::kId), l.ptr<int32_t>(LeavesWrongValues::kCount));
}

}  // namespace

void LeavesWrongValues::emit(sdk::Recorder& r, std::span<const tenon_operand> operands, const Args& args) {
  cuda::emit<&leave>(r, {.name = "leave", .operands = operands, .chunks = {}}, args);
}

}  // namespace tenon::bad

TENON_PLUGIN(tenon::bad::LeavesWrongValues);
