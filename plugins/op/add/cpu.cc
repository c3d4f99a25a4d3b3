#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const float* other = row.operand(Add::kAddend);
  for (int64_t i = 0; i < row.args.columns; ++i) row.y[i] = row.x[i] + other[i];
}

}  // namespace

void Add::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "add", .has_rows = true}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Add);
