#include <cmath>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

// sqrt(2 / pi)
constexpr float kSlope = 0.7978845608028654f, kCubic = 0.044715f;

void run(const sdk::cpu::Row& row) {
  for (int64_t i = 0; i < row.args.columns; ++i) {
    const float a = row.x[i];
    row.y[i] = 0.5f * a * (1.0f + std::tanh(kSlope * (a + kCubic * a * a * a)));
  }
}

}  // namespace

void Gelu::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "gelu"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Gelu);
