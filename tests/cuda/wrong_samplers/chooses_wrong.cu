#include "bad_plugins/chooses_wrong.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::bad {
namespace {

constexpr uint32_t kThreads = 64;

__global__ void choose_kernel(ChoosesWrong::Args a, int32_t* next) {
  cuda::wait();
  for (uint32_t row = threadIdx.x; row < a.rows; row += blockDim.x) next[row] = a.token;
}

void choose(const ChoosesWrong::Args& a, const cuda::Launch& l) {
  l(&choose_kernel, {.blocks = {1}, .threads = {kThreads}}, a, l.ptr<int32_t>(0));
}

}  // namespace

void ChoosesWrong::emit(sdk::Recorder& r, std::span<const tenon_operand> operands, const Args& args) {
  cuda::emit<&choose>(r, {.name = "choose", .operands = operands, .chunks = {}}, args);
}

}  // namespace tenon::bad

TENON_PLUGIN(tenon::bad::ChoosesWrong);
