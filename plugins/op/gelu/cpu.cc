#include "plugin.h"
#include "tenon/sdk/cpu/gelu.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

// y may be x.
void run(const sdk::cpu::Row& row) {
  const float* x = row.x;
  float* y = row.y;
#pragma GCC ivdep
  for (int64_t i = 0; i < row.args.columns; ++i) y[i] = sdk::cpu::gelu(x[i]);
}

}  // namespace

void Gelu::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "gelu"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Gelu);
