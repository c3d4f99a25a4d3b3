#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  for (int64_t i = 0; i < row.args.columns; ++i) row.y[i] = row.x[i] + row.operand(Bias::kBias)[i];
}

}  // namespace

void Bias::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "bias"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Bias);
