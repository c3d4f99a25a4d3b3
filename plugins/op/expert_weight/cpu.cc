#include <algorithm>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"
#include "tenon/sdk/experts.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const int32_t* i = row.args.i;
  const float weight = sdk::weight_of_rank(row.x, row.args.columns, i[ExpertWeight::kRank], i[ExpertWeight::kChosen],
                                           i[ExpertWeight::kRenormalised] != 0);
  std::fill_n(row.y, i[ExpertWeight::kColumns], weight);
}

}  // namespace

void ExpertWeight::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "expert_weight"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ExpertWeight);
