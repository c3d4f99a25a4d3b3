#include "half_quadratic.h"

namespace tenon::rows {
namespace {

constexpr double kNorm = 0.7;     // the large errors are rare by this norm
constexpr double kPull = 10;      // the sum of both has to come so near to the error
constexpr double kGrowth = 1.01;  // the pull grows by it with each turn
constexpr int kTurns = 20;

double mean_error(const Int4Group& group, const float* w, uint32_t n) {
  const float step = group.step(), first = group.first();
  double sum = 0;
  for (uint32_t i = 0; i < n; ++i) {
    sum += std::abs(double{w[i]} - (double{first} + double{step} * int4_code(w[i], first, step)));
  }
  return sum / n;
}

// Returns the large error: what the norm leaves of an error.
double shrunk(double error, double weight) {
  const double size = std::abs(error);
  if (size == 0) return 0;
  return std::copysign(std::max(size - std::pow(size, kNorm - 1) / weight, 0.0), error);
}

// Returns the zero point as the code that stands for 0 which makes the small errors' mean 0.
double better_zero(const Int4Group& group, const float* w, uint32_t n, double weight) {
  const float step = group.step(), first = group.first();
  double sum = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t q = int4_code(w[i], first, step);
    const double error = double{w[i]} - (double{first} + double{step} * q);
    sum += q - (w[i] - shrunk(error, weight)) / step;
  }
  return sum / n;
}

}  // namespace

Int4Group int4_group_by_hqq(const float* w, uint32_t n) {
  Int4Group best = int4_group_of_range(w, n);
  if (!best.finite()) return best;
  double least = mean_error(best, w, n), weight = kPull;
  for (int turn = 0; turn < kTurns; ++turn, weight *= kGrowth) {
    Int4Group tried = best;
    tried.zero = sdk::float_to_bf16(static_cast<float>((8 - better_zero(best, w, n, weight)) * best.step()));
    const double error = tried.finite() ? mean_error(tried, w, n) : least;
    if (error >= least) break;
    best = tried;
    least = error;
  }
  return best;
}

}  // namespace tenon::rows
