#include "draw.h"
#include "plugin.h"
#include "tenon/abi/device.h"
#include "tenon/sdk/cpu/candidates.h"

namespace tenon::categorical {
namespace {

namespace cpu = sdk::cpu;

enum Operand : uint32_t { kNext = cpu::kOwnOperand, kPos, kRng };
constexpr DrawFunction kKernels[] = {&scalar::draw, &avx2::draw, &avx512::draw};

struct Args {
  cpu::CandidateGrid grid;
  uint32_t kernel, reserved;
};

void choose(const Args& a, const sdk::Part& part) {
  cpu::select(a.grid, part, kNext, [&](const cpu::Entries& e) {
    const uint32_t* key = part.ptr<uint32_t>(kRng) + size_t{4} * static_cast<uint32_t>(e.slot);
    const auto position = static_cast<uint32_t>(part.ptr<int32_t>(kPos)[e.step_row]) + 1;
    const Draw d = kKernels[a.kernel]({e.logit, e.id, e.first, e.n, {key[0], key[1]}, position});
    return cpu::Best{d.score, d.id};
  });
}

}  // namespace

Categorical::Categorical(const sdk::Params&, const sdk::Env& env) {
  const uint64_t isa = env.device().isa;
  kernel_ = (isa & TENON_ISA_AVX512) != 0 ? 2 : (isa & TENON_ISA_AVX2) != 0 ? 1 : 0;
}

void Categorical::record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const cpu::CandidateOp op(
      c, r, {{s.next, TENON_WRITE}, {r.step(TENON_STEP_POS), TENON_READ}, {r.step(TENON_STEP_RNG), TENON_READ}});
  r.emit<choose>({.name = "draw",
                  .operands = op.operands,
                  .chunks = {op.grid.chunks(), op.grid.rows},
                  .cost = op.cost(60, false),
                  .scratch_bytes = cpu::select_scratch(op.grid)},
                 Args{op.grid, kernel_, 0});
}

}  // namespace tenon::categorical

TENON_PLUGIN(tenon::categorical::Categorical);
