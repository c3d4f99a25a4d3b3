// AWQ works so: columns of a matrix that meet large x are multiplied before they are rounded, and x is divided; then
// the weights at the ends of a group's range are clipped where that loses less. See Lin et al. 2023, arXiv:2306.00978.
#pragma once

#include <span>
#include <vector>

#include "../calibrated/grid.h"
#include "../calibrated/moments.h"
#include "../calibrated/workers.h"

namespace tenon::awq {

struct Rounding {
  calibrated::GridRule rule;
  uint32_t group;  // so many columns share a grid
};

// These are matrices side by side that take the same columns of x: one set, or one for each expert that rows came to.
struct SharedInput {
  struct Set {
    std::span<const float* const> data;  // matrix m: (rows[m], columns)
    calibrated::Moments moments;         // rows() > 0
  };
  std::span<const Set> sets;
  std::span<const int64_t> rows;
  uint32_t columns;
};

// Returns the factors of columns with the least error of all products: mean|x|^(i / 20), i < 20, over the root of
// the greatest times the least; the mean is that of the rows of all sets. `tied` columns, of the same number, have one
// factor, by the mean over all. Returns nothing if the moments are not finite.
std::vector<float> searched_factors(const SharedInput& input, const uint32_t* tied, const Rounding& rounding,
                                    const calibrated::Products& products, calibrated::Workers& workers);

// This is a matrix of n rows and k columns, rounded.
struct Rounded {
  std::vector<uint8_t> codes;           // (n, k)
  std::vector<calibrated::Grid> grids;  // (n, groups)
};

struct Matrix {
  const float* w;  // (n, k)
  uint32_t n, k;
  const float* factor;  // (k): by which w has been multiplied; nullptr: ones
};

// Rounds every weight to the nearest value of its group.
Rounded round_to_nearest(const Matrix& matrix, const Rounding& rounding, calibrated::Workers& workers);

// Cuts each group's range to that share of its greatest magnitude, of 1, 0.95, ... 0.55, which leaves the product of
// the group's columns alone the least error, and then rounds as round_to_nearest() does.
Rounded round_clipped(const Matrix& matrix, const calibrated::Moments& moments, const Rounding& rounding,
                      const calibrated::Products& products, calibrated::Workers& workers);

}  // namespace tenon::awq
