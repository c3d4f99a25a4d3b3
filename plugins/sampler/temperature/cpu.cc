#include "plugin.h"
#include "tenon/sdk/cpu/candidates.h"

namespace tenon::temperature {
namespace {

namespace cpu = sdk::cpu;

enum Operand : uint32_t { kParams = cpu::kOwnOperand, kScaled };

void scale(const cpu::CandidateGrid& g, const sdk::Part& part) {
  cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) {
    const float divisor = part.ptr<Temperature::Record>(kParams)[e.slot].divisor;
    float* scaled = part.ptr<float>(kScaled) + size_t{e.row} * g.width + e.first;
    for (uint32_t i = 0; i < e.n; ++i) scaled[i] = e.logit[i] / divisor;
  });
}

}  // namespace

void Temperature::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const tenon_tid scaled = cpu::temp_logits(c, r);
  const cpu::CandidateOp op(c, r, {{s.params, TENON_READ}, {scaled, TENON_WRITE}});
  r.emit<scale>({.name = "scale", .operands = op.operands, .chunks = {op.grid.chunks()}, .cost = op.cost(1, true)},
                op.grid);
  c.logits = scaled;
}

}  // namespace tenon::temperature

TENON_PLUGIN(tenon::temperature::Temperature);
