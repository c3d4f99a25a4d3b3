#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const float* factor = row.operand(Mul::kFactor);
  for (int64_t i = 0; i < row.args.columns; ++i) row.y[i] = row.x[i] * factor[i];
}

}  // namespace

void Mul::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "mul", .has_rows = true}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Mul);
