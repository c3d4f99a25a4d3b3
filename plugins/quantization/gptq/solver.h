// GPTQ works so: one column of a matrix after the other is rounded, and what the product loses by it is made up for by
// the columns that are not rounded yet. See Frantar et al. 2022, arXiv:2210.17323.
#pragma once

#include <optional>
#include <vector>

#include "../calibrated/grid.h"
#include "../calibrated/moments.h"
#include "../calibrated/workers.h"

namespace tenon::gptq {

struct SolverOptions {
  calibrated::GridRule rule;
  uint32_t group;      // so many columns share a grid; at most 128, or the whole row
  bool act_order;      // columns with the largest mean x^2 come first
  bool static_groups;  // grids are those of the weights before the first column is rounded
  bool search;         // grids are those of the ranges that leave the least error, not of the whole range
  double damp;         // this much of the mean of the diagonal is added to it
};

// This is a matrix of n rows and k columns, in groups.
struct Solution {
  Solution(uint32_t n, uint32_t k, uint32_t group)
      : rows(n),
        columns(k),
        groups((k + group - 1) / group),
        codes(size_t{n} * k),
        grids(size_t{n} * groups),
        group_of(k) {}

  uint32_t rows, columns, groups;
  std::vector<uint8_t> codes;           // (rows, columns)
  std::vector<calibrated::Grid> grids;  // (rows, groups)
  std::vector<uint32_t> group_of;       // by column
};

struct Matrix {
  const float* w;  // (n, k)
  uint32_t n, k;
};

// Every weight is rounded to the nearest value of its group.
Solution round_to_nearest(const Matrix& m, const SolverOptions& options, calibrated::Workers& workers);

// Returns the weights for inputs with these moments, and nothing if the moments are not finite.
std::optional<Solution> solve(const Matrix& m, const calibrated::Moments& moments, const SolverOptions& options,
                              const calibrated::Products& products, calibrated::Workers& workers);

}  // namespace tenon::gptq
