// These tests hold the divergence of two distributions, and the codes of a baseline's, against their formulas in
// double.
#include "divergence.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tenon/core/error.h"

namespace tenon::app {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(size_t vocab, float scale, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(3, scale);
  std::vector<float> logits(vocab);
  for (float& value : logits) value = normal(random);
  return logits;
}

// Computes the divergence by the formula, from logits as they are.
double straightforward(const std::vector<float>& base, const std::vector<float>& other) {
  double base_sum = 0, other_sum = 0, divergence = 0;
  for (const float value : base) base_sum += std::exp(double{value});
  for (const float value : other) other_sum += std::exp(double{value});
  for (size_t i = 0; i < base.size(); ++i) {
    const double p = std::exp(double{base[i]}) / base_sum, q = std::exp(double{other[i]}) / other_sum;
    if (p > 0) divergence += p * std::log(p / q);
  }
  return divergence;
}

CodedRow coded(const std::vector<float>& logits) {
  CodedRow row;
  row.assign(Logits(logits), 0);
  return row;
}

TEST(Divergence, IsTheStraightforwardSum) {
  for (const float scale : {0.1F, 1.0F, 4.0F}) {
    for (const float noise : {0.01F, 0.1F, 1.0F}) {
      const std::vector<float> base = random_logits(1001, scale, 1);
      std::vector<float> other = random_logits(1001, noise, 2);
      for (size_t i = 0; i < base.size(); ++i) other[i] += base[i];
      const double expected = straightforward(base, other);
      EXPECT_NEAR(kl_divergence(coded(base), Logits(other)), expected, 1e-6 + 2e-3 * expected) << scale << " " << noise;
    }
  }
}

TEST(Divergence, OfADistributionFromItselfIsNoneButForRounding) {
  for (const float scale : {0.0F, 0.1F, 1.0F, 10.0F}) {
    const std::vector<float> logits = random_logits(5000, scale, 3);
    EXPECT_LT(kl_divergence(coded(logits), Logits(logits)), 5e-7) << scale;
  }
}

TEST(Divergence, TakesNothingForWhatIsImpossibleOrFarBelow) {
  const std::vector<float> base = {1, -kInfinity, 0, -100};
  EXPECT_EQ(coded(base).code[1], CodedRow::kNone);
  EXPECT_EQ(coded(base).code[3], CodedRow::kNone);
  EXPECT_LT(kl_divergence(coded(base), Logits(base)), 1e-7);
  const std::vector<float> other = {1, 0, -kInfinity, 0};
  EXPECT_EQ(kl_divergence(coded(base), Logits(other)), kInfinity);
}

TEST(Divergence, OfNoDistributionIsAnError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& logits :
       {std::vector<float>{1, nan, 0}, {nan, 1}, {1, kInfinity}, {-kInfinity, -kInfinity}})
    EXPECT_THROW(Logits{logits}, Error);
}

TEST(CodedRow, KeepsLogProbabilitiesToHalfAStep) {
  const std::vector<float> logits = random_logits(2000, 6, 4);
  const Logits exact(logits);
  CodedRow row;
  row.assign(exact, 17);
  EXPECT_EQ(row.top, exact.top);
  EXPECT_EQ(row.code[static_cast<size_t>(row.top)], 0);
  EXPECT_LE(row.step, CodedRow::kReach / 65534);
  EXPECT_FLOAT_EQ(row.negative_log_likelihood, static_cast<float>(exact.negative_log_likelihood(17)));
  for (size_t i = 0; i < logits.size(); ++i) {
    const double below = double{logits[static_cast<size_t>(row.top)]} - double{logits[i]};
    if (row.code[i] == CodedRow::kNone) {
      EXPECT_GE(below, 31.999);
    } else {
      EXPECT_NEAR(double{row.step} * row.code[i], below, 0.51 * row.step + 1e-5);
    }
  }
}

TEST(SignalToNoise, IsTheRatioOfPowersInDecibels) {
  SignalToNoise ratio;
  EXPECT_EQ(ratio.decibels(), 200);  // nothing differs
  // The means are 2 and 0.5, the signal is 1 + 1 + 0, and the noise 0.01 + 0.01 + 0.
  ratio.add(std::vector<float>{1, 3, 2, -INFINITY}, std::vector<float>{1.6F, 3.4F, 2.5F, 0});
  EXPECT_NEAR(ratio.decibels(), 10 * std::log10(2 / 0.02), 1e-5);
  ratio.add(std::vector<float>{5, 9}, std::vector<float>{6, 10});  // it is the same distribution
  EXPECT_NEAR(ratio.decibels(), 10 * std::log10((2 + 8) / 0.02), 1e-5);
}

TEST(DivergenceSpread, HasTheQuantilesOfNumpy) {
  std::vector<double> values;
  for (int i = 0; i < 101; ++i) values.push_back((i * 37) % 101);
  const DivergenceSpread of = spread(values);
  EXPECT_DOUBLE_EQ(of.mean, 50);
  EXPECT_DOUBLE_EQ(of.median, 50);
  EXPECT_DOUBLE_EQ(of.p99, 99);
  EXPECT_DOUBLE_EQ(of.max, 100);
  const std::vector<double> four = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(quantile(four, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(four, 0.99), 7.88);
  EXPECT_DOUBLE_EQ(quantile(four, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(four, 1), 8);
  EXPECT_DOUBLE_EQ(spread({5}).p99, 5);
  EXPECT_EQ(spread({1, kInfinity}).max, kInfinity);
}

TEST(Likelihood, IsMeanAndStandardError) {
  const std::vector<double> values = {1, 2, 3, 4};
  const Likelihood of(values);
  EXPECT_DOUBLE_EQ(of.perplexity(), std::exp(2.5));
  EXPECT_DOUBLE_EQ(of.standard_error(), std::exp(2.5) * std::sqrt(5.0 / 3 / 4));
  EXPECT_EQ(Likelihood(std::vector<double>{2}).standard_error(), 0);
}

}  // namespace
}  // namespace tenon::app
