// sampler.ban keeps a token from ever being chosen.
#include <limits>

#include "tenon/sdk/cpu/filter.h"
#include "tenon/sdk/sampler.h"

namespace sdk = tenon::sdk;
namespace cpu = tenon::sdk::cpu;

namespace {

struct Record {  // it is one sequence's; encode() fills it in when its request starts
  int32_t token;
};

// A chunk is a block of one row's candidates.
void drop(const cpu::CandidateGrid& grid, const sdk::Part& part) {
  cpu::for_each_chunk(grid, part, [&](const cpu::Entries& entries) {
    const int32_t banned = part.ptr<const Record>(cpu::kFilterParams)[entries.slot].token;
    cpu::write_kept(grid, part, entries, [&](float, int32_t id) { return id != banned; });
  });
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
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  using Record = ::Record;

  Ban(const sdk::Params&, const sdk::Env&) {}

  Record encode(const sdk::Params& request) const { return {static_cast<int32_t>(request.integer("token"))}; }

  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
    const tenon_candidates kept = cpu::temp_candidates(c, r);
    const cpu::CandidateOp op = cpu::filter_op(c, s.params, kept, r);
    r.emit<drop>({.name = "drop", .operands = op.operands, .chunks = {op.grid.chunks()}, .cost = op.cost(1, true)},
                 op.grid);
    c = kept;
  }
};

}  // namespace

TENON_PLUGIN(Ban);
