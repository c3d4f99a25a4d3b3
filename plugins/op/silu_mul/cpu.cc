#include <cmath>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const int64_t n = row.args.columns / 2;
  for (int64_t i = 0; i < n; ++i) row.y[i] = row.x[i] / (1.0f + std::exp(-row.x[i])) * row.x[n + i];
}

}  // namespace

void SiluMul::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "silu_mul"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::SiluMul);
