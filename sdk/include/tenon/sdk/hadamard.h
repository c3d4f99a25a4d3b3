// This rotation of a head's elements spreads what one of them has over all: it is the Walsh-Hadamard transform,
// orthonormal and its own inverse. A product of two rotated vectors is that of the vectors, so scores stay what they
// are where keys and queries are rotated, and a mean of rotated values is the rotated mean. Codes of few bits lose less
// then, since no element of a row is far larger than the others (QuaRot, Ashkboos et al., arXiv:2404.00456).
//
// A head of n elements is rotated in blocks of the largest power of two that divides n: 128 as one block, 96 as three
// of 32, an odd head not at all. Sums run in one order everywhere, so that every device gives the same bits:
//
//   for (step = 1; step < block; step *= 2) elements i and i + step of each pair become their sum and their difference;
//   then each is multiplied by 1 / sqrt(block)
#pragma once

#include <cstdint>

namespace tenon::sdk {

constexpr uint32_t hadamard_block(uint32_t dim) {
  return dim & (0 - dim);
}
// Returns 1 / sqrt(block), rounded once.
constexpr float hadamard_scale(uint32_t block) {
  constexpr float kRoot = 0.70710678118654752440f;
  float scale = 1;
  for (; block >= 4; block /= 4) scale /= 2;
  return block == 2 ? scale * kRoot : scale;
}
// Returns the first element of pair i of dim / 2, in a pass that takes elements `step` apart.
constexpr uint32_t hadamard_first(uint32_t i, uint32_t step) {
  return i / step * 2 * step + i % step;
}

inline void rotate_head(float* x, uint32_t dim) {
  const uint32_t block = hadamard_block(dim);
  for (uint32_t step = 1; step < block; step *= 2) {
    for (uint32_t i = 0; i < dim / 2; ++i) {
      float &first = x[hadamard_first(i, step)], &second = x[hadamard_first(i, step) + step];
      const float sum = first + second, difference = first - second;
      first = sum;
      second = difference;
    }
  }
  for (uint32_t i = 0; i < dim; ++i) x[i] *= hadamard_scale(block);
}

}  // namespace tenon::sdk
