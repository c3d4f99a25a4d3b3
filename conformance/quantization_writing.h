// These are the checks of a quantization scheme that writes files, and what they share with those of every scheme.
#pragma once

#include <cmath>
#include <cstdint>

#include "conformance/suite.h"

namespace tenon::conformance {

// The weights that are held may differ so much from the file's, relative: two bits a weight are
// off by about 0.5, another matrix by 1.4.
inline constexpr double kHeld = 0.75;
inline constexpr int64_t kWidth = 256;  // it has whole blocks of every format

// Root mean square of the difference, relative to that of what is wanted.
class Difference {
 public:
  void add(double got, double wanted) {
    off_ += (got - wanted) * (got - wanted);
    size_ += wanted * wanted;
  }
  double relative() const { return std::sqrt(off_ / size_); }

 private:
  double off_ = 0, size_ = 0;
};

// A matrix that it wrote is that matrix when it is loaded.
void reads_what_it_writes(const Subject& subject);
// The factors that it asks for after calibration are finite and above 0, and the same for columns that are tied; a
// matrix whose columns have been multiplied by factors, its own or any other, is written as it is given.
void takes_factors(const Subject& subject);

}  // namespace tenon::conformance
