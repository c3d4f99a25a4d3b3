#include "interval.h"

#include <algorithm>
#include <cmath>

#include "spdlog/fmt/fmt.h"

namespace tenon::app {
namespace {

constexpr double kNormal95 = 1.959963984540054;  // the normal distribution has 95 % within so many deviations

}  // namespace

Interval interval_of_mean(const Likelihood& values) {
  const double reach = kNormal95 * values.deviation / std::sqrt(static_cast<double>(values.count));
  return {values.mean - reach, values.mean + reach};
}

Interval interval_of_perplexity(const Likelihood& values) {
  const Interval mean = interval_of_mean(values);
  return {std::exp(mean.low), std::exp(mean.high)};
}

Interval interval_of_share(uint64_t hits, uint64_t count) {
  const auto n = static_cast<double>(count);
  const double share = static_cast<double>(hits) / n, z = kNormal95;
  const double middle = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double reach = z / (1 + z * z / n) * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {std::max(0.0, middle - reach), std::min(1.0, middle + reach)};
}

std::string interval_text(const Interval& interval, int digits) {
  return fmt::format("(95 %: {:.{}f} to {:.{}f})", interval.low, digits, interval.high, digits);
}

}  // namespace tenon::app
