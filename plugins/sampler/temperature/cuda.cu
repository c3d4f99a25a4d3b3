#include "plugin.h"
#include "tenon/cuda/candidates.cuh"

namespace tenon::temperature {
namespace {

enum Operand : uint32_t { kParams = sdk::cpu::kOwnOperand, kScaled };

__global__ void scale_kernel(cuda::CandidateInput in, const Temperature::Record* records, float* scaled) {
  cuda::CandidateRow row;
  if (!cuda::open(in, row)) return;
  const float divisor = records[row.slot].divisor;
  float* out = scaled + size_t{row.row} * in.g.width;
  cuda::for_each_entry(row, [&](uint32_t i, float logit) { out[i] = logit / divisor; });
}

void scale(const cuda::CandidateGrid& g, const cuda::Launch& l) {
  l(&scale_kernel, cuda::entry_grid(g), cuda::CandidateInput(g, l), l.ptr<const Temperature::Record>(kParams),
    l.ptr<float>(kScaled));
}

}  // namespace

void Temperature::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const tenon_tid scaled = sdk::cpu::temp_logits(c, r);
  const sdk::cpu::CandidateOp op(c, r, {{s.params, TENON_READ}, {scaled, TENON_WRITE}});
  cuda::emit<scale>(r, {.name = "scale", .operands = op.operands, .chunks = {}, .cost = op.cost(1, true)}, op.grid);
  c.logits = scaled;
}

}  // namespace tenon::temperature

TENON_PLUGIN(tenon::temperature::Temperature);
