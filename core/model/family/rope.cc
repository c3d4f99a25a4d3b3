#include "rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon::family {
namespace {

std::vector<double> frequencies_of(double theta, uint32_t rotated) {
  std::vector<double> f(rotated / 2);
  for (size_t i = 0; i < f.size(); ++i) {
    f[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
  }
  return f;
}

// Returns the theta that slows the slowest pair by the factor that the length asks for, and the fastest not at all.
double dynamic_theta(const Rope& r, uint32_t positions) {
  const double longest = std::max<double>(positions, r.context), dims = r.rotated;
  return r.theta * std::pow(r.factor * longest / r.context - (r.factor - 1), dims / (dims - 2));
}

void scale_yarn(const Rope& r, std::vector<double>& frequencies) {
  const double dims = r.rotated;
  // Returns the pair, as a real number, that turns so often within the original context.
  const auto pair_of = [&](double turns) {
    return dims * std::log(r.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(r.theta));
  };
  double first = pair_of(r.fast_turns), last = pair_of(r.slow_turns);
  if (r.whole_pairs) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dims - 1);
  if (first == last) last += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slow = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    frequencies[i] *= slow / r.factor + (1 - slow);
  }
}

void scale_llama3(const Rope& r, std::vector<double>& frequencies) {
  for (double& f : frequencies) {
    const double turns = r.original_context * f / (2 * std::numbers::pi);
    const double kept =
        std::clamp((turns - r.low_frequency_factor) / (r.high_frequency_factor - r.low_frequency_factor), 0.0, 1.0);
    f *= kept + (1 - kept) / r.factor;
  }
}

}  // namespace

std::vector<double> plain_frequencies(const Rope& rope) {
  return frequencies_of(rope.theta, rope.rotated);
}

std::vector<double> scaled_frequencies(const Rope& rope, uint32_t positions) {
  std::vector<double> f = plain_frequencies(rope);
  switch (rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& each : f) each /= rope.factor;
      break;
    case RopeScaling::kDynamic:
      f = frequencies_of(dynamic_theta(rope, positions), rope.rotated);
      break;
    case RopeScaling::kYarn:
      scale_yarn(rope, f);
      break;
    case RopeScaling::kLongrope: {
      const auto& divisors = positions > rope.original_context ? rope.long_divisors : rope.short_divisors;
      for (size_t i = 0; i < f.size(); ++i) f[i] /= divisors[i];
      break;
    }
    case RopeScaling::kLlama3:
      scale_llama3(rope, f);
      break;
  }
  return f;
}

std::vector<double> frequencies(const Rope& rope, uint32_t positions) {
  std::vector<double> f = scaled_frequencies(rope, positions);
  for (size_t i = 0; i < rope.divisors.size(); ++i) f[i] /= rope.divisors[i];
  return f;
}

double yarn_attention_factor(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

}  // namespace tenon::family
