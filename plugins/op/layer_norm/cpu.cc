#include <cmath>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const int64_t n = row.args.columns;
  const float *weight = row.operand(LayerNorm::kWeight), *bias = row.operand(LayerNorm::kBias);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(row.x[i]);
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (row.x[i] - mean) * (row.x[i] - mean);
  const double variance = squares / static_cast<double>(n);
  const double scale = 1.0 / std::sqrt(variance + static_cast<double>(row.args.f[LayerNorm::kEps]));
  for (int64_t i = 0; i < n; ++i) row.y[i] = static_cast<float>((row.x[i] - mean) * scale) * weight[i] + bias[i];
}

}  // namespace

void LayerNorm::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "layer_norm"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::LayerNorm);
