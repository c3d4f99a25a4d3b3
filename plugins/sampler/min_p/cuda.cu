#include "plugin.h"
#include "tenon/cuda/filter.cuh"

namespace tenon::min_p {
namespace {

struct Shared {
  uint32_t most[cuda::kClusterWarps + 1], scan[cuda::kClusterWarps];
};

__global__ void __launch_bounds__(cuda::kClusterThreads, 2)
    keep_kernel(cuda::CandidateInput in, const MinP::Record* records, cuda::Kept kept) {
  __shared__ Shared s;
  cuda::CandidateRow row;
  if (!cuda::open(in, row)) return;
  const double greatest = cuda::greatest_of_row(row, s.most), log_p = records[row.slot].log_p;
  cuda::write_kept(in, row, kept, s.scan,
                   [&](float logit, int32_t) { return logit == greatest || logit - greatest >= log_p; });
  cuda::this_cluster().sync();  // others may still be reading s
}

void keep(const cuda::CandidateGrid& g, const cuda::Launch& l) {
  l(&keep_kernel, cuda::cluster_grid(&keep_kernel, g), cuda::CandidateInput(g, l),
    l.ptr<const MinP::Record>(sdk::cpu::kFilterParams), cuda::Kept(g, l));
}

}  // namespace

void MinP::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const tenon_candidates kept = sdk::cpu::temp_candidates(c, r);
  const sdk::cpu::CandidateOp op = sdk::cpu::filter_op(c, s.params, kept, r);
  cuda::emit<keep>(r, {.name = "keep_likely", .operands = op.operands, .chunks = {}, .cost = op.cost(3, true)},
                   op.grid);
  c = kept;
}

}  // namespace tenon::min_p

TENON_PLUGIN(tenon::min_p::MinP);
