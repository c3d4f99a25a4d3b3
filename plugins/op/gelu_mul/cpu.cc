#include <cmath>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

// sqrt(2 / pi)
constexpr float kSlope = 0.7978845608028654f, kCubic = 0.044715f;

void run(const sdk::cpu::Row& row) {
  const int64_t n = row.args.columns / 2;
  for (int64_t i = 0; i < n; ++i) {
    const float a = row.x[i];
    row.y[i] = 0.5f * a * (1.0f + std::tanh(kSlope * (a + kCubic * a * a * a))) * row.x[n + i];
  }
}

}  // namespace

void GeluMul::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "gelu_mul"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::GeluMul);
