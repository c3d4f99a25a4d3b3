#include <algorithm>

#include "plugin.h"

namespace tenon::logit_bias {
namespace {

namespace cpu = sdk::cpu;

void add(const cpu::CandidateGrid& g, const sdk::Part& part) {
  cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) {
    const Record& record = part.ptr<Record>(kParams)[e.slot];
    float* out = part.ptr<float>(kBiased) + size_t{e.row} * g.width + e.first;
    std::copy_n(e.logit, e.n, out);
    if (record.count == 0) return;
    if (!g.dense()) {
      for (uint32_t i = 0; i < e.n; ++i) out[i] += bias_of(record, e.id_of(i));
      return;
    }
    for (uint32_t i = lower_bound(record, static_cast<int32_t>(e.first)); i < record.count; ++i) {
      const auto at = static_cast<uint32_t>(record.id[i]) - e.first;
      if (at >= e.n) break;
      out[at] += record.bias[i];
    }
  });
}

}  // namespace

void LogitBias::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const cpu::CandidateOp op = bias_op(c, s.params, r);
  r.emit<add>({.name = "add_bias", .operands = op.operands, .chunks = {op.grid.chunks()}, .cost = op.cost(1, true)},
              op.grid);
}

}  // namespace tenon::logit_bias

TENON_PLUGIN(tenon::logit_bias::LogitBias);
