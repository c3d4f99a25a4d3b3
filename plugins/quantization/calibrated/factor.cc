// Both steps go by blocks of kBlock columns or rows, so that nearly all of the work is products of matrices.
#include "factor.h"

#include <algorithm>
#include <cmath>

namespace tenon::calibrated {
namespace {

constexpr uint32_t kBlock = 128;  // columns of a panel, or rows of a band
constexpr uint32_t kTile = 192;   // rows and columns that a thread takes at a time

uint32_t pieces(uint32_t n, uint32_t size) {
  return (n + size - 1) / size;
}

class Factor {
 public:
  Factor(double* a, uint32_t n, const Products& products, Workers& workers)
      : a_(a), n_(n), products_(products), workers_(workers), block_(size_t{kBlock} * kBlock) {}

  bool run() {
    for (uint32_t k = 0; k < n_; k += kBlock) {
      const uint32_t size = std::min(kBlock, n_ - k);
      if (!factor_block(k, size)) return false;
      solve_panel(k, size);
      update_rest(k, size);
    }
    for (uint32_t i = 0; i < n_; ++i) std::fill(at(i, i) + 1, a_ + (size_t{i} + 1) * n_, 0.0);
    band_.resize(size_t{kBlock} * n_);
    for (uint32_t i = 0; i < n_; i += kBlock) invert_band(i, std::min(kBlock, n_ - i));
    return true;
  }

 private:
  double* at(uint32_t row, uint32_t column) const { return a_ + size_t{row} * n_ + column; }

  // The diagonal block becomes its factor. block_ keeps it transposed, (column, row).
  bool factor_block(uint32_t k, uint32_t size) {
    for (uint32_t j = 0; j < size; ++j) {
      double* row = at(k + j, k);
      for (uint32_t i = 0; i < j; ++i) {
        row[i] /= block_[size_t{i} * kBlock + i];
        block_[size_t{i} * kBlock + j] = row[i];
        for (uint32_t t = i + 1; t <= j; ++t) row[t] -= row[i] * (t < j ? block_[size_t{i} * kBlock + t] : row[i]);
      }
      if (!(row[j] > 0) || !std::isfinite(row[j])) return false;
      row[j] = std::sqrt(row[j]);
      block_[size_t{j} * kBlock + j] = row[j];
    }
    return true;
  }

  // Solves the rows below the block: L(i, k) = a(i, k) L(k, k)^-T.
  void solve_panel(uint32_t k, uint32_t size) {
    const uint32_t below = k + size;
    workers_.each(pieces(n_ - below, kTile), [&](uint32_t piece, void*) {
      const uint32_t first = below + piece * kTile;
      for (uint32_t i = first; i < std::min(n_, first + kTile); ++i) {
        double* row = at(i, k);
        for (uint32_t j = 0; j < size; ++j) {
          const double* factor = block_.data() + size_t{j} * kBlock;
          row[j] /= factor[j];
          for (uint32_t t = j + 1; t < size; ++t) row[t] -= row[j] * factor[t];
        }
      }
    });
  }

  // Subtracts L(i, k) L(j, k)^T from a(i, j) for the rest of the lower triangle.
  void update_rest(uint32_t k, uint32_t size) {
    const uint32_t below = k + size, tiles = pieces(n_ - below, kTile);
    workers_.each(tiles * (tiles + 1) / 2, [&](uint32_t piece, void* scratch) {
      uint32_t row_tile = 0;
      while (piece > row_tile) piece -= ++row_tile;
      const uint32_t i = below + row_tile * kTile, j = below + piece * kTile;
      products_.f64({.c = at(i, j),
                     .c_row = n_,
                     .rows = std::min(kTile, n_ - i),
                     .columns = std::min(kTile, n_ - j),
                     .inner = size,
                     .scale = -1,
                     .a = {at(i, k), n_, 1},
                     .b = {at(j, k), 1, n_},
                     .scratch = scratch});
    });
  }

  // Computes rows i to i + size of the inverse X: X(i, i) = L(i, i)^-1, and to the left of it X(i, j) = -X(i, i) times
  // the sum of L(i, k) X(k, j) over the rows k above, which are inverted already.
  void invert_band(uint32_t i, uint32_t size) {
    invert_block(i, size);  // block_ has X(i, i)
    std::fill(band_.begin(), band_.end(), 0.0);
    workers_.each(pieces(i, kTile), [&](uint32_t piece, void* scratch) {
      const uint32_t j = piece * kTile, columns = std::min(kTile, i - j);
      products_.f64({.c = band_.data() + j,
                     .c_row = n_,
                     .rows = size,
                     .columns = columns,
                     .inner = i - j,
                     .scale = -1,
                     .a = {at(i, j), n_, 1},
                     .b = {at(j, j), n_, 1},
                     .scratch = scratch});
    });
    workers_.each(pieces(i, kTile), [&](uint32_t piece, void* scratch) {
      const uint32_t j = piece * kTile, columns = std::min(kTile, i - j);
      for (uint32_t r = 0; r < size; ++r) std::fill_n(at(i + r, j), columns, 0.0);
      products_.f64({.c = at(i, j),
                     .c_row = n_,
                     .rows = size,
                     .columns = columns,
                     .inner = size,
                     .scale = 1,
                     .a = {block_.data(), kBlock, 1},
                     .b = {band_.data() + j, n_, 1},
                     .scratch = scratch});
    });
    for (uint32_t r = 0; r < size; ++r) std::copy_n(block_.data() + size_t{r} * kBlock, size, at(i + r, i));
  }

  // block_ becomes the inverse of the diagonal block, row by row.
  void invert_block(uint32_t i, uint32_t size) {
    std::fill(block_.begin(), block_.end(), 0.0);
    for (uint32_t r = 0; r < size; ++r) {
      const double* factor = at(i + r, i);
      double* row = block_.data() + size_t{r} * kBlock;
      for (uint32_t t = 0; t < r; ++t) {
        const double* above = block_.data() + size_t{t} * kBlock;
        for (uint32_t c = 0; c <= t; ++c) row[c] -= factor[t] * above[c];
      }
      for (uint32_t c = 0; c < r; ++c) row[c] /= factor[r];
      row[r] = 1 / factor[r];
    }
  }

  double* a_;
  uint32_t n_;
  const Products& products_;
  Workers& workers_;
  std::vector<double> block_, band_;  // (kBlock, kBlock), (kBlock, n)
};

}  // namespace

bool invert_cholesky_factor(double* a, uint32_t n, const Products& products, Workers& workers) {
  return Factor(a, n, products, workers).run();
}

}  // namespace tenon::calibrated
