// Intervals that hold the true value with a probability of 95 %, if what was counted is a random sample.
#pragma once

#include <cstdint>
#include <string>

#include "divergence.h"

namespace tenon::app {

struct Interval {
  double low = 0, high = 0;
};

// Of the mean of independent values, by the normal distribution.
Interval interval_of_mean(const Likelihood& values);
// Of the perplexity: that of the mean, carried through exp.
Interval interval_of_perplexity(const Likelihood& values);
// Of a share of which `hits` in `count` were seen; Wilson's, which stays within 0 and 1. count > 0.
Interval interval_of_share(uint64_t hits, uint64_t count);

// "(95 %: 1.23 to 4.56)", with so many digits after the point.
std::string said(const Interval& interval, int digits);

}  // namespace tenon::app
