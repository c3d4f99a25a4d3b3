// These compare distributions over a vocabulary: how far one is from another, and what many such distances amount to.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon::app {

struct Logits {
  std::span<const float> values;  // one for each token
  int32_t top = 0;                // it is the likeliest token; the first one of equals
  double log_sum = 0;             // it is the logarithm of the sum of their exponentials

  // Throws Error(kModel) for values that make no distribution: a NaN, +infinity, or nothing but -infinity.
  explicit Logits(std::span<const float> logits);
  double negative_log_likelihood(int32_t token) const { return log_sum - double{values[static_cast<size_t>(token)]}; }
};

// This is a distribution kept in 16 bits a token: token i has a probability in proportion to exp(-step * code[i]), or
// none where the code is kNone. Whatever is kReach below the likeliest token or further is given none.
struct CodedRow {
  static constexpr uint16_t kNone = 65535;
  static constexpr float kReach = 32;  // nats

  int32_t top = 0;                    // it is the likeliest token
  float step = 0;                     // nats; kReach / 65534 at most
  float negative_log_likelihood = 0;  // it is that of the token that stood there, before coding
  std::vector<uint16_t> code;         // one for each token

  void assign(const Logits& logits, int32_t token);
};

// Returns KL(base || other) in nats, over the whole vocabulary; both have the same one.
double kl_divergence(const CodedRow& base, const Logits& other);

// This measures the ratio of the signal to the noise of rounding in logits, where each row may be off by a constant,
// which changes no distribution: sum (z - mean z)^2 / sum (d - mean d)^2, with z the base's logits of a row, d how far
// others are from them, and the sums over all rows.
class SignalToNoise {
 public:
  // Both are logits of the same row over the same vocabulary; tokens that either makes impossible do not count.
  void add(std::span<const float> base, std::span<const float> other);
  // Returns decibels, at most 200: f32 has no finer differences.
  double decibels() const;

 private:
  double signal_ = 0, noise_ = 0;
};

struct DivergenceSpread {
  double mean = 0, median = 0, p99 = 0, max = 0;
};
DivergenceSpread spread(std::vector<double> values);  // `values` is not empty

// Returns the value at (n - 1) * fraction of values in rising order, between
// neighbours by a straight line; fraction is 0 to 1.
double quantile(std::span<const double> ascending, double fraction);

// These are taken over negative natural log-likelihoods.
struct Likelihood {
  double mean = 0, deviation = 0;
  uint64_t count = 0;

  explicit Likelihood(std::span<const double> values);  // `values` is not empty
  double perplexity() const { return std::exp(mean); }
  // Returns the standard error of the perplexity, as if tokens were independent of each
  // other: that of the mean, carried through exp.
  double standard_error() const { return perplexity() * deviation / std::sqrt(static_cast<double>(count)); }
};

}  // namespace tenon::app
