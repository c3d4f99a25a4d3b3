// Calibrations keep this of the x of a site: the sums over rows of x_i x_j, of |x_i|, and the number of rows. They give
// the squared error of any change D of a matrix, summed over all rows: the sum of |D x|^2 is the trace of D M D^T.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tenon/abi/quantization.h"

namespace tenon::calibrated {

// Returns the bytes of the state of a site of k columns, or of each expert of a routed one, which has:
//   f32 (k, k)   sums of x_i x_j, i <= j; below the diagonal lies anything
//   f64 (k)      sums of |x_i|
//   f64          rows
constexpr uint64_t moments_bytes(uint64_t k) {
  return k * k * sizeof(float) + (k % 2) * sizeof(float) + (k + 1) * sizeof(double);
}
constexpr uint64_t magnitudes_offset(uint64_t k) {
  return k * k * sizeof(float) + (k % 2) * sizeof(float);
}

// Reads a state, which it borrows.
class Moments {
 public:
  Moments(const void* state, uint32_t k)
      : products_(static_cast<const float*>(state)), state_(static_cast<const uint8_t*>(state)), k_(k) {}

  float product(uint32_t i, uint32_t j) const {
    return i <= j ? products_[size_t{i} * k_ + j] : products_[size_t{j} * k_ + i];
  }
  double magnitude(uint32_t i) const { return number(i); }
  double rows() const { return number(k_); }

 private:
  double number(uint32_t i) const {
    double value = 0;
    std::memcpy(&value, state_ + magnitudes_offset(k_) + i * sizeof(value), sizeof(value));
    return value;
  }

  const float* products_;
  const uint8_t* state_;
  uint32_t k_;
};

}  // namespace tenon::calibrated
