#include <cstring>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"
#include "tenon/sdk/experts.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const int32_t expert = sdk::expert_of_rank(row.x, row.args.columns, row.args.i[ChosenExpert::kRank]);
  std::memcpy(row.y, &expert, sizeof(expert));
}

}  // namespace

void ChosenExpert::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "chosen_expert"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ChosenExpert);
