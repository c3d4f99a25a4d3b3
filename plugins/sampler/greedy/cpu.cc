#include "plugin.h"
#include "tenon/sdk/cpu/candidates.h"

namespace tenon::greedy {
namespace {

namespace cpu = sdk::cpu;

constexpr uint32_t kNext = cpu::kOwnOperand;
constexpr uint32_t kGroup = 32;

// Only groups that hold something greater are looked at one by one.
cpu::Best best_of(const cpu::Entries& e) {
  cpu::Best best;
  for (uint32_t begin = 0; begin < e.n; begin += kGroup) {
    const uint32_t n = std::min(kGroup, e.n - begin);
    bool promising = false;
    for (uint32_t i = 0; i < n; ++i) promising |= e.logit[begin + i] >= best.score;
    if (!promising) continue;
    for (uint32_t i = begin; i < begin + n; ++i) {
      const cpu::Best candidate{e.logit[i], e.id_of(i)};
      if (candidate.score > cpu::kOut && candidate.better_than(best)) best = candidate;
    }
  }
  return best;
}

void choose(const cpu::CandidateGrid& g, const sdk::Part& part) {
  cpu::select(g, part, kNext, best_of);
}

}  // namespace

void Greedy::record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const cpu::CandidateOp op(c, r, {{s.next, TENON_WRITE}});
  r.emit<choose>({.name = "argmax",
                  .operands = op.operands,
                  .chunks = {op.grid.chunks(), op.grid.rows},
                  .cost = op.cost(1, false),
                  .scratch_bytes = cpu::select_scratch(op.grid)},
                 op.grid);
}

}  // namespace tenon::greedy

TENON_PLUGIN(tenon::greedy::Greedy);
