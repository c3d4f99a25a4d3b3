// These hold the true value with a probability of 95 %, if what was counted is a random sample.
#pragma once

#include <cstdint>
#include <string>

#include "divergence.h"

namespace tenon::app {

struct Interval {
  double low = 0, high = 0;
};

// Returns the interval of the mean of independent values, which the normal distribution gives.
Interval interval_of_mean(const Likelihood& values);
// Returns the interval of the perplexity, which is that of the mean, carried through exp.
Interval interval_of_perplexity(const Likelihood& values);
// Returns Wilson's interval of a share, which stays within 0 and 1: `hits` of `count` were seen. count > 0.
Interval interval_of_share(uint64_t hits, uint64_t count);

// Returns a text such as "(95 %: 1.23 to 4.56)", with so many digits after the point.
std::string interval_text(const Interval& interval, int digits);

}  // namespace tenon::app
