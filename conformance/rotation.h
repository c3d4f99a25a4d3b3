// This is the rotation of heads of tenon/sdk/hadamard.h by its definition, in float64:
// what the answers of attention are held to.
#pragma once

#include <bit>
#include <cmath>
#include <span>
#include <vector>

namespace tenon::conformance {

// Rotates a head. Element i of row j of a block's matrix is + if i and j share an even number of ones.
inline void rotate_by_matrix(std::span<double> x) {
  const size_t n = x.size(), block = n & (~n + 1);
  const std::vector<double> before(x.begin(), x.end());
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (size_t j = 0; j < block; ++j) {
      const double v = before[i / block * block + j];
      sum += std::popcount(i % block & j) % 2 == 0 ? v : -v;
    }
    x[i] = sum / std::sqrt(static_cast<double>(block));
  }
}

}  // namespace tenon::conformance
