#include <algorithm>
#include <cmath>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void normalize(const float* x, const float* weight, float* y, int64_t n, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const auto scale = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(eps)));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

void run(const sdk::cpu::Row& row) {
  const sdk::Heads heads(row.args.i);
  const int32_t dim = heads.k_dim;
  for (int32_t h = 0; h < heads.q + heads.kv; ++h) {
    const float* weight = row.operand(h < heads.q ? QkNorm::kQWeight : QkNorm::kKWeight);
    normalize(row.x + h * dim, weight, row.y + h * dim, dim, row.args.f[QkNorm::kEps]);
  }
  const int64_t normed = heads.q_and_k_columns();
  if (row.x != row.y) std::copy(row.x + normed, row.x + row.args.columns, row.y + normed);
}

}  // namespace

void QkNorm::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "qk_norm"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::QkNorm);
