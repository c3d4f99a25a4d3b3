#include <cstring>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"
#include "tenon/sdk/experts.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  int32_t expert = -1;
  for (int32_t rank = 0; rank < row.args.i[ChosenExperts::kChosen]; ++rank) {
    if (rank == 0 || expert >= 0) expert = sdk::next_expert(row.x, row.args.columns, expert);
    std::memcpy(row.y + rank, &expert, sizeof(expert));
  }
}

}  // namespace

void ChosenExperts::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "chosen_experts"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ChosenExperts);
