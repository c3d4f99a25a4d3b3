// Known answers: Wilson's intervals as in Brown, Cai and DasGupta's paper of 2001, and the normal distribution's.
#include "interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tenon::app {
namespace {

TEST(Interval, OfAShareIsWilsons) {
  const Interval half = interval_of_share(5, 10);
  EXPECT_NEAR(half.low, 0.2366, 5e-5);
  EXPECT_NEAR(half.high, 0.7634, 5e-5);
  const Interval none = interval_of_share(0, 10), all = interval_of_share(10, 10);
  EXPECT_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 0.2775, 5e-5);
  EXPECT_NEAR(all.low, 0.7225, 5e-5);
  EXPECT_DOUBLE_EQ(all.high, 1);
}

TEST(Interval, OfAMeanReachesTwoStandardErrors) {
  const std::vector<double> values = {1, 2, 3, 4, 5};  // a mean of 3, a deviation of sqrt(2.5)
  const double error = std::sqrt(2.5 / 5);
  const Interval mean = interval_of_mean(Likelihood(values));
  EXPECT_NEAR(mean.low, 3 - 1.96 * error, 1e-4);
  EXPECT_NEAR(mean.high, 3 + 1.96 * error, 1e-4);
  const Interval perplexity = interval_of_perplexity(Likelihood(values));
  EXPECT_DOUBLE_EQ(perplexity.low, std::exp(mean.low));
  EXPECT_DOUBLE_EQ(perplexity.high, std::exp(mean.high));
  EXPECT_EQ(interval_text({1.25, 2.5}, 1), "(95 %: 1.2 to 2.5)");
}

}  // namespace
}  // namespace tenon::app
