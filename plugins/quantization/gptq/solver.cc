// With H = (2 / rows) sum of x x^T and H^-1 = U^T U, U upper triangular, the error of column j, (w - rounded
// w) / U(j, j), times U(j, t) is what the later columns t take off. Rows of a matrix do not meet, so threads
// take tiles of rows through all columns, kBlock of them at a time: errors reach the columns of a block at
// once, and those after it by one product.
//
// U is found without H^-1. H with rows and columns in reverse is L L^T; then U(i, j) = L^-1(k - 1 - i, k - 1 - j), and
// so lies in the inverse of a Cholesky factor, which is read backwards. A factor does not change the codes, so 2 / rows
// is left out but for the 1 of columns whose x was always 0.
#include "solver.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../calibrated/factor.h"

namespace tenon::gptq {
namespace {

using calibrated::Grid;
using calibrated::GridRule;
using calibrated::Moments;
using calibrated::Products;
using calibrated::Workers;

constexpr uint32_t kBlock = 128;  // columns
constexpr uint32_t kTile = 128;   // rows
// Few rows tell little of the other x that the matrix will meet, and without more damping weights would follow them to
// a greater error than rounding's. From 3.2 rows a column on, this is below the default damp.
constexpr double kFewRowsDamp = 0.1;

// The grid of the share of the range that leaves the least sum of |error|^2.4.
Grid searched_grid(const GridRule& rule, const float* w, uint32_t n) {
  constexpr int kSteps = 100, kTried = 80;
  constexpr float kNorm = 2.4F;
  float low = 0, high = 0;
  for (uint32_t i = 0; i < n; ++i) {
    low = std::min(low, w[i]);
    high = std::max(high, w[i]);
  }
  Grid best = rule.grid(low, high);
  float least = INFINITY;
  for (int step = 0; step < kTried; ++step) {
    const float share = 1 - static_cast<float>(step) / kSteps;
    const Grid grid = rule.grid(share * low, share * high);
    if (!grid.finite()) continue;
    float error = 0;
    for (uint32_t i = 0; i < n && error < least; ++i) error += std::pow(std::abs(w[i] - grid.rounded(w[i])), kNorm);
    if (error >= least) continue;
    least = error;
    best = grid;
  }
  return best;
}

Grid grid_of(const SolverOptions& options, const float* w, uint32_t n) {
  return options.search ? searched_grid(options.rule, w, n) : options.rule.grid_of(w, n);
}

uint32_t tiles_of(uint32_t rows) {
  return (rows + kTile - 1) / kTile;
}

class Solver {
 public:
  Solver(const float* w, const Moments& moments, const SolverOptions& options, const calibrated::Compute& compute,
         Solution& out)
      : w_(w),
        moments_(moments),
        options_(options),
        products_(compute.products),
        workers_(compute.workers),
        out_(out),
        k_(out.columns),
        order_(k_) {}

  bool run() {
    order_columns();
    if (!factorize()) return false;
    if (options_.static_groups) set_static_grids();
    workers_.each(tiles_of(out_.rows), [this](uint32_t tile, void* scratch) {
      const uint32_t first = tile * kTile;
      solve_rows(first, std::min(kTile, out_.rows - first), scratch);
    });
    return true;
  }

 private:
  float* weights_of(std::vector<float>& w, uint32_t row) const { return w.data() + size_t{row} * k_; }
  double u(uint32_t i, uint32_t j) const { return factor_[size_t{k_ - 1 - i} * k_ + (k_ - 1 - j)]; }

  // order_[i] is the column that is rounded as number i.
  void order_columns() {
    std::iota(order_.begin(), order_.end(), 0U);
    if (options_.act_order) {
      std::stable_sort(order_.begin(), order_.end(),
                       [&](uint32_t a, uint32_t b) { return moments_.product(a, a) > moments_.product(b, b); });
    }
    for (uint32_t i = 0; i < k_; ++i) {
      const uint32_t rank = options_.static_groups ? order_[i] : i;
      out_.group_of[order_[i]] = rank / options_.group;
    }
  }

  // Returns false if the moments are not finite.
  bool factorize() {
    const double dead = moments_.rows() / 2;
    double mean = 0;
    for (uint32_t i = 0; i < k_; ++i) mean += diagonal(i, dead) / k_;
    if (!std::isfinite(mean)) return false;
    const double columns_a_row = k_ / moments_.rows();
    const double damp = std::max(options_.damp, kFewRowsDamp * columns_a_row * columns_a_row) * mean;
    factor_.resize(size_t{k_} * k_);
    workers_.each(k_, [&](uint32_t row, void*) {
      const uint32_t of_row = order_[k_ - 1 - row];
      double* to = factor_.data() + size_t{row} * k_;
      for (uint32_t j = 0; j < row; ++j) to[j] = moments_.product(of_row, order_[k_ - 1 - j]);
      to[row] = diagonal(of_row, dead) + damp;
    });
    return calibrated::invert_cholesky_factor(factor_.data(), k_, products_, workers_);
  }
  double diagonal(uint32_t column, double dead) const {
    const double d = moments_.product(column, column);
    return d == 0 ? dead : d;
  }

  void set_static_grids() {
    workers_.each(out_.rows, [&](uint32_t row, void*) {
      const float* w = w_ + size_t{row} * k_;
      for (uint32_t g = 0; g < out_.groups; ++g) {
        const uint32_t first = g * options_.group;
        out_.grids[size_t{row} * out_.groups + g] = grid_of(options_, w + first, std::min(options_.group, k_ - first));
      }
    });
  }

  void solve_rows(uint32_t first, uint32_t rows, void* scratch) {
    std::vector<float> w(size_t{rows} * k_), errors(size_t{rows} * kBlock), block(size_t{kBlock} * kBlock);
    for (uint32_t r = 0; r < rows; ++r) {
      const float* from = w_ + size_t{first + r} * k_;
      for (uint32_t i = 0; i < k_; ++i) weights_of(w, r)[i] = from[order_[i]];
    }
    for (uint32_t begin = 0; begin < k_; begin += kBlock) {
      const uint32_t n = std::min(kBlock, k_ - begin), end = begin + n;
      for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t j = i; j < n; ++j) block[size_t{i} * kBlock + j] = static_cast<float>(u(begin + i, begin + j));
      }
      for (uint32_t r = 0; r < rows; ++r) {
        round_block(first + r, {begin, n, block.data()}, weights_of(w, r), errors.data() + size_t{r} * kBlock);
      }
      if (end == k_) continue;
      products_.f32_by_f64({.c = w.data() + end,
                            .c_row = k_,
                            .rows = rows,
                            .columns = k_ - end,
                            .inner = n,
                            .scale = -1,
                            .a = {errors.data(), kBlock, 1},
                            .b = {&factor_[size_t{k_ - 1 - begin} * k_ + (k_ - 1 - end)], -ptrdiff_t{k_}, -1},
                            .scratch = scratch});
    }
  }

  // Columns begin to begin + n.
  struct Block {
    uint32_t begin, n;
    const float* factor;  // (n, n) in rows of kBlock: U
  };
  // Rounds a block's columns of a row, w as all columns before them left it.
  void round_block(uint32_t row, const Block& block, float* w, float* errors) {
    const auto [begin, n, factor] = block;
    Grid* grids = out_.grids.data() + size_t{row} * out_.groups;
    uint8_t* codes = out_.codes.data() + size_t{row} * k_;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t at = begin + i, column = order_[at], group = out_.group_of[column];
      if (!options_.static_groups && at % options_.group == 0) {
        grids[group] = grid_of(options_, w + at, std::min(options_.group, k_ - at));
      }
      const float* of_column = factor + size_t{i} * kBlock;
      const uint32_t code = grids[group].code(w[at]);
      const float error = (w[at] - grids[group].value(code)) / of_column[i];
      codes[column] = static_cast<uint8_t>(code);
      errors[i] = error;
      for (uint32_t t = i + 1; t < n; ++t) w[begin + t] -= error * of_column[t];
    }
  }

  const float* w_;
  const Moments& moments_;
  const SolverOptions& options_;
  const Products& products_;
  Workers& workers_;
  Solution& out_;
  uint32_t k_;
  std::vector<uint32_t> order_;
  std::vector<double> factor_;  // (k, k): L^-1
};

}  // namespace

Solution round_to_nearest(const Matrix& m, const SolverOptions& options, Workers& workers) {
  const auto [w, n, k] = m;
  Solution out(n, k, options.group);
  for (uint32_t i = 0; i < k; ++i) out.group_of[i] = i / options.group;
  workers.each(n, [&](uint32_t row, void*) {
    for (uint32_t g = 0; g < out.groups; ++g) {
      const uint32_t first = g * options.group, count = std::min(options.group, k - first);
      const float* of_group = w + size_t{row} * k + first;
      const Grid grid = out.grids[size_t{row} * out.groups + g] = grid_of(options, of_group, count);
      for (uint32_t i = 0; i < count; ++i) {
        out.codes[size_t{row} * k + first + i] = static_cast<uint8_t>(grid.code(of_group[i]));
      }
    }
  });
  return out;
}

std::optional<Solution> solve(const Matrix& m, const Moments& moments, const SolverOptions& options,
                              const Products& products, Workers& workers) {
  std::optional<Solution> out(std::in_place, m.n, m.k, options.group);
  if (!Solver(m.w, moments, options, {products, workers}, *out).run()) return std::nullopt;
  return out;
}

}  // namespace tenon::gptq
