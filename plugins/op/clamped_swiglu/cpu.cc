#include <cmath>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const int64_t n = row.args.columns / 2;
  const float alpha = row.args.f[ClampedSwiglu::kAlpha], limit = row.args.f[ClampedSwiglu::kLimit];
  for (int64_t i = 0; i < n; ++i) {
    // A comparison with NaN is false, so that NaN stays what it is.
    const float gate = row.x[i] > limit ? limit : row.x[i];
    const float up = row.x[n + i] > limit ? limit : row.x[n + i] < -limit ? -limit : row.x[n + i];
    row.y[i] = gate / (1.0f + std::exp(-alpha * gate)) * (up + 1.0f);
  }
}

}  // namespace

void ClampedSwiglu::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "clamped_swiglu"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ClampedSwiglu);
