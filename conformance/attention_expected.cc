// This computes the answer of attention in float64 by the formula: it is the naive twin of every attention over a plain
// cache.
#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/attention_heads.h"
#include "conformance/attention_host.h"
#include "conformance/rotation.h"

namespace tenon::conformance {

std::vector<bool> AttentionHost::visible(uint32_t row) const {
  const auto& sequence = case_.sequences[rows_[row].sequence];
  std::vector<bool> seen(sequence.before + sequence.rows);
  const int32_t position = rows_[row].position;
  const auto in_window = [&](int32_t p) {
    return case_.window == 0 || p > position - static_cast<int32_t>(case_.window);
  };
  for (uint32_t cell = 0; cell < sequence.before; ++cell) seen[cell] = in_window(static_cast<int32_t>(cell));
  for (auto i = static_cast<int32_t>(row); i >= 0; i = rows_[i].parent) {
    seen[rows_[i].place] = in_window(rows_[i].position);
  }
  return seen;
}

std::vector<double> AttentionHost::expected(tenon_format queries) const {
  const AttentionCase& c = case_;
  const double scale = 1 / std::sqrt(static_cast<float>(c.k_dim));
  std::vector<double> all;
  for (uint32_t row = 0; row < rows(); ++row) {
    const Cached& cached = cached_[rows_[row].sequence];
    const std::vector<bool> seen = visible(row);
    for (uint32_t head = 0; head < c.q_heads; ++head) {
      const uint32_t kv_head = head / (c.q_heads / c.kv_heads);
      const auto first = q_.begin() + static_cast<int64_t>((size_t{row} * c.q_heads + head) * c.k_dim);
      std::vector<float> q(first, first + c.k_dim);
      prepare(q.data(), rows_[row].position, q_weight_);
      if (c.hadamard) rotate(c.k_dim, q);
      round_to(queries, c.k_dim, q);
      std::vector<double> score(seen.size()), out(c.v_dim);
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (size_t t = 0; t < seen.size(); ++t) {
        if (!seen[t]) continue;
        const float* key = &cached.stored_k[(t * c.kv_heads + kv_head) * c.k_dim];
        for (uint32_t d = 0; d < c.k_dim; ++d) score[t] += double{q[d]} * key[d];
        score[t] *= scale;
        if (c.softcap != 0) score[t] = c.softcap * std::tanh(score[t] / c.softcap);
        top = std::max(top, score[t]);
      }
      if (c.sinks) {
        top = std::max(top, double{sinks_[head]});
        sum = std::exp(double{sinks_[head]} - top);
      }
      for (size_t t = 0; t < seen.size(); ++t) {
        if (!seen[t]) continue;
        const double p = std::exp(score[t] - top);
        sum += p;
        const float* value = &cached.stored_v[(t * c.kv_heads + kv_head) * c.v_dim];
        for (uint32_t d = 0; d < c.v_dim; ++d) out[d] += p * value[d];
      }
      for (double& x : out) x /= sum;
      if (c.hadamard) rotate_by_matrix(out);
      all.insert(all.end(), out.begin(), out.end());
    }
  }
  return all;
}

}  // namespace tenon::conformance
