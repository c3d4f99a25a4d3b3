#include <cmath>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const int64_t n = row.args.columns;
  const float* weight = row.operand(RmsNorm::kWeight);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(row.x[i]) * static_cast<double>(row.x[i]);
  const double mean = sum / static_cast<double>(n);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(row.args.f[RmsNorm::kEps])));
  for (int64_t i = 0; i < n; ++i) row.y[i] = row.x[i] * scale * weight[i];
}

}  // namespace

void RmsNorm::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "rms_norm"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::RmsNorm);
