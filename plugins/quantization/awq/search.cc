// This searches AWQ's factors and clips (Lin et al., arXiv:2306.00978, section 3.2). The error of a change D of a
// matrix, summed over all rows x of the texts, is the trace of D M D^T, M the sums of x x^T; so every row that was
// observed counts and none is kept. Tiles of rows of D M are products of matrices, shared by threads; the sums of tiles
// are added in their order, so that the number of threads changes nothing.
#include "search.h"

#include <algorithm>
#include <cmath>

namespace tenon::awq {
namespace {

using calibrated::Grid;
using calibrated::Moments;
using calibrated::Products;
using calibrated::Workers;

constexpr uint32_t kTile = 64;      // rows
constexpr uint32_t kColumns = 192;  // a block of the error's terms has so many
constexpr int kPowers = 20, kClips = 10;
constexpr double kLeastMean = 1e-4;  // the least mean of |x|: columns that were never seen get a factor, too

uint32_t tiles_of(uint32_t rows) {
  return (rows + kTile - 1) / kTile;
}

// Returns M (k, k) by the number of rows, divided by the factors on both sides.
std::vector<float> mean_products(const Moments& moments, double rows, uint32_t k, const float* factor,
                                 Workers& workers) {
  std::vector<float> m(size_t{k} * k);
  workers.each(k, [&](uint32_t i, void*) {
    for (uint32_t j = 0; j < k; ++j) {
      const double by = factor == nullptr ? 1 : double{factor[i]} * factor[j];
      m[size_t{i} * k + j] = static_cast<float>(moments.product(i, j) / (rows * by));
    }
  });
  return m;
}

// This is a part of M: element (i, j) is data[i * row + j].
struct MeanProducts {
  const float* data;
  uint32_t row;
};

// This is the trace of D M D^T for rows of D. d is (rows, n) with stride n. M is symmetric, so the terms of two columns
// in different blocks are summed once and count twice: half of the products are left out.
struct ErrorOf {
  const Products& products;
  void* scratch;
  std::vector<float> dm = {};

  // by_row gets the error of each row.
  void operator()(const float* d, uint32_t rows, uint32_t n, const MeanProducts& m, double* by_row) {
    dm.assign(size_t{rows} * n, 0);
    for (uint32_t first = 0; first < n; first += kColumns) {
      const uint32_t columns = std::min(kColumns, n - first);
      const auto add = [&](uint32_t from, uint32_t inner, float times) {
        products.f32({.c = dm.data() + first,
                      .c_row = n,
                      .rows = rows,
                      .columns = columns,
                      .inner = inner,
                      .scale = times,
                      .a = {d + from, static_cast<ptrdiff_t>(n), 1},
                      .b = {m.data + size_t{from} * m.row + first, static_cast<ptrdiff_t>(m.row), 1},
                      .scratch = scratch});
      };
      if (first > 0) add(0, first, 2);
      add(first, columns, 1);
    }
    for (uint32_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (uint32_t i = 0; i < n; ++i) sum += double{d[size_t{r} * n + i]} * dm[size_t{r} * n + i];
      by_row[r] = sum;
    }
  }
};

double rows_of(const SharedInput& input) {
  double rows = 0;
  for (const SharedInput::Set& set : input.sets) rows += set.moments.rows();
  return rows;
}

// mean|x| of each column, or of all columns that are tied to it.
std::vector<double> mean_magnitudes(const SharedInput& input, const uint32_t* tied) {
  const double rows = rows_of(input);
  std::vector<double> sum(input.columns), count(input.columns);
  for (uint32_t i = 0; i < input.columns; ++i) {
    double magnitude = 0;
    for (const SharedInput::Set& set : input.sets) magnitude += set.moments.magnitude(i);
    sum[tied[i]] += magnitude / rows;
    ++count[tied[i]];
  }
  std::vector<double> mean;
  for (uint32_t i = 0; i < input.columns; ++i) mean.push_back(std::max(sum[tied[i]] / count[tied[i]], kLeastMean));
  return mean;
}

std::vector<float> factors_of(const std::vector<double>& mean, double power) {
  const auto [least, greatest] = std::minmax_element(mean.begin(), mean.end());
  const double middle = std::pow(std::sqrt(*least * *greatest), power);
  std::vector<float> factors;
  for (const double m : mean) factors.push_back(static_cast<float>(std::pow(m, power) / middle));
  return factors;
}

// Writes to d how far the row, rounded with the factors, is from the row as it was. row, scaled, d: (k).
void rounding_error(const float* row, const std::vector<float>& factors, const Rounding& rounding, float* scaled,
                    float* d) {
  const auto k = static_cast<uint32_t>(factors.size());
  for (uint32_t i = 0; i < k; ++i) scaled[i] = row[i] * factors[i];
  for (uint32_t first = 0; first < k; first += rounding.group) {
    const uint32_t n = std::min(rounding.group, k - first);
    const Grid grid = rounding.rule.grid_of(scaled + first, n);
    for (uint32_t i = first; i < first + n; ++i) d[i] = (grid.rounded(scaled[i]) - scaled[i]) / factors[i];
  }
}

// m: the set's M.
double error_of(const SharedInput& input, const SharedInput::Set& set, const std::vector<float>& m,
                const std::vector<float>& factors, const Rounding& rounding, const calibrated::Compute& compute) {
  double error = 0;
  const uint32_t k = input.columns;
  for (size_t mat = 0; mat < set.data.size(); ++mat) {
    const auto rows = static_cast<uint32_t>(input.rows[mat]);
    std::vector<double> by_row(rows);
    compute.workers.each(tiles_of(rows), [&](uint32_t tile, void* scratch) {
      const uint32_t first = tile * kTile, count = std::min(kTile, rows - first);
      std::vector<float> scaled(k), d(size_t{count} * k);
      for (uint32_t r = 0; r < count; ++r) {
        rounding_error(set.data[mat] + size_t{first + r} * k, factors, rounding, scaled.data(), &d[size_t{r} * k]);
      }
      ErrorOf{compute.products, scratch}(d.data(), count, k, {m.data(), k}, &by_row[first]);
    });
    for (const double e : by_row) error += e;
  }
  return error;
}

// This is one group of a tile of rows.
struct TileGroup {
  const float* w;  // (rows, n) in rows of k: the group's columns
  uint32_t rows, n, k;
  Grid* grids;  // [rows], `groups` apart
  uint32_t groups;
};
// Finds the group's grids. m: M's rows and columns of the group.
void clip_group(const TileGroup& group, const MeanProducts& m, const Rounding& rounding, ErrorOf& error_of) {
  const auto [w, rows, n, k, grids, groups] = group;
  std::vector<float> d(size_t{rows} * n);
  std::vector<double> errors(rows), least(rows, INFINITY);
  std::vector<Grid> tried(rows);
  for (int clip = 0; clip < kClips; ++clip) {
    for (uint32_t r = 0; r < rows; ++r) {
      const float* row = w + size_t{r} * k;
      const auto [low, high] = std::minmax_element(row, row + n);
      const float end = std::max(-*low, *high) * (1 - static_cast<float>(clip) / (2 * kClips));
      tried[r] = rounding.rule.grid(std::clamp(*low, -end, 0.0F), std::clamp(*high, 0.0F, end));
      for (uint32_t i = 0; i < n; ++i) d[size_t{r} * n + i] = tried[r].rounded(row[i]) - row[i];
    }
    error_of(d.data(), rows, n, m, errors.data());
    for (uint32_t r = 0; r < rows; ++r) {
      if (clip > 0 && !(errors[r] < least[r])) continue;
      least[r] = errors[r];
      grids[size_t{r} * groups] = tried[r];
    }
  }
}

void set_codes(const float* w, uint32_t row, uint32_t k, const Rounding& rounding, Rounded& out) {
  const uint32_t groups = (k + rounding.group - 1) / rounding.group;
  for (uint32_t i = 0; i < k; ++i) {
    const Grid& grid = out.grids[size_t{row} * groups + i / rounding.group];
    out.codes[size_t{row} * k + i] = static_cast<uint8_t>(grid.code(w[size_t{row} * k + i]));
  }
}

}  // namespace

std::vector<float> searched_factors(const SharedInput& input, const uint32_t* tied, const Rounding& rounding,
                                    const Products& products, Workers& workers) {
  const std::vector<double> mean = mean_magnitudes(input, tied);
  std::vector<std::vector<float>> tried;
  for (int i = 0; i < kPowers; ++i) tried.push_back(factors_of(mean, static_cast<double>(i) / kPowers));
  std::vector<double> errors(tried.size());
  for (const SharedInput::Set& set : input.sets) {
    const std::vector<float> m = mean_products(set.moments, rows_of(input), input.columns, nullptr, workers);
    for (size_t i = 0; i < tried.size(); ++i) {
      errors[i] += error_of(input, set, m, tried[i], rounding, {products, workers});
    }
  }
  std::vector<float> best;
  double least = INFINITY;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (!(errors[i] < least)) continue;
    least = errors[i];
    best = tried[i];
  }
  return best;
}

Rounded round_to_nearest(const Matrix& matrix, const Rounding& rounding, Workers& workers) {
  const auto [w, n, k, factor] = matrix;
  const uint32_t groups = (k + rounding.group - 1) / rounding.group;
  Rounded out{std::vector<uint8_t>(size_t{n} * k), std::vector<Grid>(size_t{n} * groups)};
  workers.each(n, [&](uint32_t row, void*) {
    for (uint32_t g = 0; g < groups; ++g) {
      const uint32_t first = g * rounding.group;
      out.grids[size_t{row} * groups + g] =
          rounding.rule.grid_of(w + size_t{row} * k + first, std::min(rounding.group, k - first));
    }
    set_codes(w, row, k, rounding, out);
  });
  return out;
}

Rounded round_clipped(const Matrix& matrix, const Moments& moments, const Rounding& rounding, const Products& products,
                      Workers& workers) {
  const auto [w, n, k, factor] = matrix;
  const uint32_t groups = (k + rounding.group - 1) / rounding.group;
  const std::vector<float> m = mean_products(moments, moments.rows(), k, factor, workers);
  Rounded out{std::vector<uint8_t>(size_t{n} * k), std::vector<Grid>(size_t{n} * groups)};
  workers.each(tiles_of(n), [&](uint32_t tile, void* scratch) {
    const uint32_t row = tile * kTile, rows = std::min(kTile, n - row);
    ErrorOf error_of{products, scratch};
    for (uint32_t g = 0; g < groups; ++g) {
      const uint32_t first = g * rounding.group;
      const TileGroup group{.w = w + size_t{row} * k + first,
                            .rows = rows,
                            .n = std::min(rounding.group, k - first),
                            .k = k,
                            .grids = &out.grids[size_t{row} * groups + g],
                            .groups = groups};
      clip_group(group, {m.data() + size_t{first} * k + first, k}, rounding, error_of);
    }
    for (uint32_t r = row; r < row + rows; ++r) set_codes(w, r, k, rounding, out);
  });
  return out;
}

}  // namespace tenon::awq
