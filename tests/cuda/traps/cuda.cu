// This sampler has a kernel that traps.
#include "tenon/cuda/candidates.cuh"
#include "tenon/sdk/sampler.h"

namespace tenon::test {
namespace {

__global__ void trap_kernel(cuda::CandidateInput) {
  __trap();
}

void choose(const cuda::CandidateGrid& g, const cuda::Launch& l) {
  l(&trap_kernel, cuda::entry_grid(g), cuda::CandidateInput(g, l));
}

class Traps : public sdk::Sampler<Traps> {
 public:
  static constexpr const char* kName = "traps";
  static constexpr const char* kDoc = "Never a token";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  struct Record {
    uint32_t unused;
  };

  Traps(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
    const sdk::cpu::CandidateOp op(c, r, {{s.next, TENON_WRITE}});
    cuda::emit<choose>(r, {.name = "trap", .operands = op.operands, .chunks = {}, .cost = op.cost(1, false)}, op.grid);
  }
};

}  // namespace
}  // namespace tenon::test

TENON_PLUGIN(tenon::test::Traps);
