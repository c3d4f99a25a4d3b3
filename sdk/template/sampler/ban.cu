// sampler.ban for CUDA keeps a token from ever being chosen.
#include <limits>

#include "tenon/cuda/candidates.cuh"
#include "tenon/sdk/sampler.h"

namespace sdk = tenon::sdk;
namespace gpu = tenon::cuda;

namespace {

struct Record {  // it is one sequence's; encode() fills it in when its request starts
  int32_t token;
};
enum : uint32_t { kRecords = sdk::cpu::kOwnOperand, kKept };  // the op's own operands

__global__ void drop_kernel(gpu::CandidateInput in, const Record* records, float* out) {
  gpu::CandidateRow row;
  if (!gpu::open(in, row)) return;  // waits for what is ahead in the program
  const auto banned = static_cast<uint32_t>(records[row.slot].token);
  float* to = out + size_t{row.row} * in.g.width;
  gpu::for_each_entry(row, [&](uint32_t i, float logit) { to[i] = i == banned ? gpu::kOut : logit; });
}

void drop(const gpu::CandidateGrid& grid, const gpu::Launch& launch) {
  launch(&drop_kernel, gpu::entry_grid(grid), gpu::CandidateInput(grid, launch), launch.ptr<const Record>(kRecords),
         launch.ptr<float>(kKept));
}

class Ban : public sdk::Sampler<Ban> {
 public:
  static constexpr const char* kName = "ban";
  static constexpr const char* kDoc = "One token is never chosen";
  static constexpr auto kParams = sdk::params(sdk::integer({.name = "token",
                                                            .doc = "The token's id",
                                                            .min = 0,
                                                            .max = std::numeric_limits<int32_t>::max(),
                                                            .flags = TENON_PARAM_PER_REQUEST}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  using Record = ::Record;

  Ban(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& request) const { return {static_cast<int32_t>(request.integer("token"))}; }

  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
    const tenon_tid kept = sdk::cpu::temp_logits(c, r);
    const sdk::cpu::CandidateOp op(c, r, {{s.params, TENON_READ}, {kept, TENON_WRITE}});
    gpu::emit<drop>(r, {.name = "drop", .operands = op.operands, .chunks = {}, .cost = op.cost(1, true)}, op.grid);
    c.logits = kept;
  }
};

}  // namespace

TENON_PLUGIN(Ban);
