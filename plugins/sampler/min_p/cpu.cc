#include "plugin.h"
#include "tenon/sdk/cpu/candidates.h"
#include "tenon/sdk/cpu/filter.h"

namespace tenon::min_p {
namespace {

namespace cpu = sdk::cpu;

void keep(const cpu::CandidateGrid& g, const sdk::Part& part) {
  auto* most = part.scratch<float>();  // [chunks]: the greatest logit of each
  if (part.phase() == 0) {
    cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) { most[e.chunk] = cpu::greatest(e); });
    return;
  }
  cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) {
    const double greatest = cpu::greatest_of_row(g, e.row, most);
    const double log_p = part.ptr<MinP::Record>(cpu::kFilterParams)[e.slot].log_p;
    cpu::write_kept(g, part, e, [&](float logit, int32_t) { return logit == greatest || logit - greatest >= log_p; });
  });
}

}  // namespace

void MinP::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const tenon_candidates kept = cpu::temp_candidates(c, r);
  const cpu::CandidateOp op = cpu::filter_op(c, s.params, kept, r);
  r.emit<keep>({.name = "keep_likely",
                .operands = op.operands,
                .chunks = {op.grid.chunks(), op.grid.chunks()},
                .cost = op.cost(3, true),
                .scratch_bytes = op.grid.chunks() * sizeof(float)},
               op.grid);
  c = kept;
}

}  // namespace tenon::min_p

TENON_PLUGIN(tenon::min_p::MinP);
