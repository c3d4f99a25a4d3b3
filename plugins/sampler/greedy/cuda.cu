#include "plugin.h"
#include "tenon/cuda/candidates.cuh"

namespace tenon::greedy {
namespace {

constexpr uint32_t kNext = sdk::cpu::kOwnOperand;

__global__ void argmax_kernel(cuda::CandidateInput in, int32_t* next, cuda::Selection* selections) {
  cuda::select(in, next, selections, [](const cuda::CandidateRow&, uint32_t, float logit) { return logit; });
}

void choose(const cuda::CandidateGrid& g, const cuda::Launch& l) {
  l(&argmax_kernel, cuda::entry_grid(g), cuda::CandidateInput(g, l), l.ptr<int32_t>(kNext),
    l.zeroed<cuda::Selection>());
}

}  // namespace

void Greedy::record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const sdk::cpu::CandidateOp op(c, r, {{s.next, TENON_WRITE}});
  cuda::emit<choose>(r,
                     {.name = "argmax",
                      .operands = op.operands,
                      .chunks = {},
                      .cost = op.cost(1, false),
                      .zeroed_bytes = cuda::selection_bytes(op.grid)},
                     op.grid);
}

}  // namespace tenon::greedy

TENON_PLUGIN(tenon::greedy::Greedy);
