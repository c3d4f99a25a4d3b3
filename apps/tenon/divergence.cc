// All sums are in double. A base row is kept in 16-bit codes (CodedRow), so that a file of a whole text's distributions
// stays small; its divergence from another row is computed from the codes.
#include "divergence.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "tenon/core/error.h"

namespace tenon::app {

Logits::Logits(std::span<const float> logits) : values(logits) {
  top = static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
  const float most = values[static_cast<size_t>(top)];
  double sum = 0;
  for (const float value : values) sum += std::exp(value - most);
  log_sum = std::log(sum) + most;
  if (!std::isfinite(log_sum)) throw Error(ErrorCode::kModel, "the logits are not finite: they make no distribution");
}

void CodedRow::assign(const Logits& logits, int32_t token) {
  top = logits.top;
  negative_log_likelihood = static_cast<float>(logits.negative_log_likelihood(token));
  const float most = logits.values[static_cast<size_t>(top)];
  float range = 0;
  for (const float value : logits.values) {
    if (const float below = most - value; below < kReach) range = std::max(range, below);
  }
  step = range / (kNone - 1);
  const float scale = range > 0 ? (kNone - 1) / range : 0;
  code.resize(logits.values.size());
  std::transform(logits.values.begin(), logits.values.end(), code.begin(), [&](float value) {
    const float below = most - value;
    return below < kReach ? static_cast<uint16_t>(std::min<float>(below * scale + 0.5F, kNone - 1)) : kNone;
  });
}

// exp(-step * code) is that of the code's upper byte times that of the lower: 512 exponentials instead of one a token.
double kl_divergence(const CodedRow& base, const Logits& other) {
  std::array<double, 256> upper{}, lower{};
  for (size_t i = 0; i < 256; ++i) {
    lower[i] = std::exp(-double{base.step} * static_cast<double>(i));
    upper[i] = std::exp(-double{base.step} * 256 * static_cast<double>(i));
  }
  double sum = 0, weighted = 0;
  for (size_t i = 0; i < base.code.size(); ++i) {
    const uint32_t code = base.code[i];
    if (code == CodedRow::kNone) continue;
    const double weight = upper[code >> 8U] * lower[code & 255U];
    sum += weight;
    weighted += weight * (other.log_sum - double{other.values[i]} - double{base.step} * code);
  }
  return std::max(0.0, weighted / sum - std::log(sum));  // rounding may leave it below
}

void SignalToNoise::add(std::span<const float> base, std::span<const float> other) {
  double count = 0, z_mean = 0, d_mean = 0;
  const auto each = [&](const auto& use) {
    for (size_t i = 0; i < base.size(); ++i) {
      if (std::isfinite(base[i]) && std::isfinite(other[i])) use(double{base[i]}, double{other[i]} - double{base[i]});
    }
  };
  each([&](double z, double d) {
    ++count;
    z_mean += z;
    d_mean += d;
  });
  each([&](double z, double d) {
    signal_ += (z - z_mean / count) * (z - z_mean / count);
    noise_ += (d - d_mean / count) * (d - d_mean / count);
  });
}

double SignalToNoise::decibels() const {
  constexpr double kMost = 200;
  return noise_ > 0 ? std::min(kMost, 10 * std::log10(signal_ / noise_)) : kMost;
}

double quantile(std::span<const double> ascending, double fraction) {
  const double at = static_cast<double>(ascending.size() - 1) * fraction;
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  const double share = at - static_cast<double>(below);
  return share > 0 ? ascending[below] * (1 - share) + ascending[above] * share : ascending[below];
}

DivergenceSpread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          .median = quantile(values, 0.5),
          .p99 = quantile(values, 0.99),
          .max = values.back()};
}

Likelihood::Likelihood(std::span<const double> values) : count(values.size()) {
  const auto n = static_cast<double>(count);
  mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  deviation = n > 1 ? std::sqrt(squares / (n - 1)) : 0;
}

}  // namespace tenon::app
