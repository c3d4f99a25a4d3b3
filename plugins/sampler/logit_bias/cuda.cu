#include "plugin.h"
#include "tenon/cuda/candidates.cuh"

namespace tenon::logit_bias {
namespace {

__global__ void add_kernel(cuda::CandidateInput in, const Record* records, float* biased) {
  cuda::CandidateRow row;
  if (!cuda::open(in, row)) return;
  const Record& record = records[row.slot];
  const bool named = record.count > 0;
  float* out = biased + size_t{row.row} * in.g.width;
  cuda::for_each_entry(
      row, [&](uint32_t i, float logit) { out[i] = named ? logit + bias_of(record, row.id_of(i)) : logit; });
}

void add(const cuda::CandidateGrid& g, const cuda::Launch& l) {
  l(&add_kernel, cuda::entry_grid(g), cuda::CandidateInput(g, l), l.ptr<const Record>(kParams), l.ptr<float>(kBiased));
}

}  // namespace

void LogitBias::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const sdk::cpu::CandidateOp op = bias_op(c, s.params, r);
  cuda::emit<add>(r, {.name = "add_bias", .operands = op.operands, .chunks = {}, .cost = op.cost(1, true)}, op.grid);
}

}  // namespace tenon::logit_bias

TENON_PLUGIN(tenon::logit_bias::LogitBias);
