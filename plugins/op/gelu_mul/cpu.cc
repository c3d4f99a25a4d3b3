#include "plugin.h"
#include "tenon/sdk/cpu/gelu.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

// y may be x: its columns are then the gate's, each of which is read before it is written.
void run(const sdk::cpu::Row& row) {
  const int64_t n = row.args.columns / 2;
  const float *gate = row.x, *up = row.x + n;
  float* y = row.y;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = sdk::cpu::gelu(gate[i]) * up[i];
}

}  // namespace

void GeluMul::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "gelu_mul"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::GeluMul);
