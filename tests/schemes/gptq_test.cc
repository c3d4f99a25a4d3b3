// quantization.gptq writes codes that follow from what was observed, by the algorithm in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "quantization/calibrated/moments.h"
#include "quantize/scheme_encoder.h"
#include "schemes.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"
#include "weights/expect_error.h"

namespace tenon::test {
namespace {

using tenon::testing::expect_error;
using Matrix = std::vector<std::vector<double>>;

struct GptqCase {
  int64_t bits = 4, group = 32;
  bool act_order = false, static_groups = false, symmetric = false;
  size_t rows = 32, columns = 160;  // that is more than a block of the solver

  size_t group_columns() const { return group > 0 ? static_cast<size_t>(group) : columns; }
  size_t groups() const { return (columns + group_columns() - 1) / group_columns(); }
  double top() const { return static_cast<double>((1 << bits) - 1); }
  std::vector<QuantizeSetting> settings() const {
    const auto text = [](bool b) { return std::string(b ? "true" : "false"); };
    return {{"bits", std::to_string(bits)},
            {"group_size", std::to_string(group)},
            {"act_order", text(act_order)},
            {"static_groups", text(static_groups)},
            {"symmetric", text(symmetric)}};
  }
};

// These are the tensors that a scheme wrote, read by the published form's definition.
struct Stored {
  std::vector<int64_t> codes;       // (rows, columns)
  std::vector<double> scale, zero;  // (groups, rows)
  std::vector<int32_t> group_of;    // by column
  Matrix weights;                   // (rows, columns)
};

int64_t bits_at(const std::vector<uint8_t>& bytes, size_t word, size_t stride, size_t at, int64_t bits) {
  int64_t value = 0;
  for (int64_t b = 0; b < bits; ++b) {
    const size_t bit = at + static_cast<size_t>(b), byte = (word + bit / 32 * stride) * 4 + bit % 32 / 8;
    value |= int64_t{bytes[byte] >> bit % 8 & 1} << b;
  }
  return value;
}

Stored stored_of(const std::vector<std::vector<uint8_t>>& tensors, const GptqCase& c) {
  Stored s;
  const auto bits = static_cast<size_t>(c.bits);
  for (size_t i = 0; i < c.groups() * c.rows; ++i) {
    uint16_t half = 0;
    std::memcpy(&half, tensors[2].data() + i * 2, 2);
    s.scale.push_back(sdk::half_to_float(half));
    const size_t words = c.rows * bits / 32;
    s.zero.push_back(double(bits_at(tensors[1], i / c.rows * words, 1, i % c.rows * bits, c.bits)) + 1);
  }
  s.group_of.resize(c.columns);
  std::memcpy(s.group_of.data(), tensors[3].data(), tensors[3].size());
  s.weights.assign(c.rows, std::vector<double>(c.columns));
  for (size_t row = 0; row < c.rows; ++row) {
    for (size_t i = 0; i < c.columns; ++i) {
      s.codes.push_back(bits_at(tensors[0], row, c.rows, i * bits, c.bits));
      const size_t at = static_cast<size_t>(s.group_of[i]) * c.rows + row;
      s.weights[row][i] = s.scale[at] * (double(s.codes.back()) - s.zero[at]);
    }
  }
  return s;
}

// Writes the matrix with the sums of x x^T that were observed; without `products` nothing was.
std::vector<std::vector<uint8_t>> written(const GptqCase& c, const std::vector<float>& w, const Matrix* products,
                                          double rows_of_x = 1000) {
  const auto registry = schemes();
  const QuantizeTarget gptq = target("gptq", *registry, c.settings());
  const ModelMatrix matrix{.path = "layers.0.mlp.up",
                           .name = "up",
                           .rows = static_cast<int64_t>(c.rows),
                           .columns = static_cast<int64_t>(c.columns)};
  const auto described = std::get<MatrixDescription>(gptq.scheme->describe(matrix));
  std::vector<uint8_t> state(calibrated::moments_bytes(c.columns));
  for (size_t i = 0; products != nullptr && i < c.columns * c.columns; ++i) {
    const auto product = static_cast<float>((*products)[i / c.columns][i % c.columns]);
    std::memcpy(state.data() + i * sizeof(float), &product, sizeof(float));
  }
  std::memcpy(state.data() + state.size() - sizeof(double), &rows_of_x, sizeof(double));
  std::vector<std::vector<uint8_t>> tensors;
  std::vector<void*> out;
  for (const MatrixDescription::Tensor& t : described.tensors) tensors.emplace_back(t.bytes());
  for (auto& t : tensors) out.push_back(t.data());
  auto e = sdk::abi_struct<tenon_encode>();
  e.rows = c.rows;
  e.data = w.data();
  e.observed = products == nullptr ? nullptr : state.data();
  e.out = out.data();
  gptq.scheme->encode(matrix, e);
  return tensors;
}

std::vector<float> random_weights(const GptqCase& c) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> w(c.rows * c.columns);
  for (float& v : w) v = normal(random);
  return w;
}

// Sums of x x^T over rows of x whose columns follow a few causes.
Matrix correlated_products(size_t columns) {
  constexpr size_t kCauses = 24, kRows = 1000;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  Matrix mix(columns, std::vector<double>(kCauses));
  for (size_t i = 0; i < columns; ++i) {
    const double size = std::exp(normal(random));
    for (double& m : mix[i]) m = size * normal(random);
  }
  Matrix sums(columns, std::vector<double>(columns));
  std::vector<double> cause(kCauses), x(columns);
  for (size_t row = 0; row < kRows; ++row) {
    for (double& c : cause) c = normal(random);
    for (size_t i = 0; i < columns; ++i) {
      x[i] = std::inner_product(cause.begin(), cause.end(), mix[i].begin(), 0.3 * normal(random));
    }
    for (size_t i = 0; i < columns; ++i) {
      for (size_t j = 0; j < columns; ++j) sums[i][j] += x[i] * x[j];
    }
  }
  return sums;
}

Matrix inverse(Matrix a) {
  const size_t n = a.size();
  Matrix b(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) b[i][i] = 1;
  for (size_t i = 0; i < n; ++i) {
    const double pivot = a[i][i];
    for (size_t t = 0; t < n; ++t) {
      a[i][t] /= pivot;
      b[i][t] /= pivot;
    }
    for (size_t r = 0; r < n; ++r) {
      const double times = a[r][i];
      for (size_t t = 0; r != i && times != 0 && t < n; ++t) {
        a[r][t] -= times * a[i][t];
        b[r][t] -= times * b[i][t];
      }
    }
  }
  return b;
}

double in_half(double x) {
  return sdk::half_to_float(sdk::float_to_half(static_cast<float>(x)));
}

struct ReferenceGrid {
  double scale, zero, top;
  double code(double w) const { return std::clamp(std::nearbyint(w / scale) + zero, 0.0, top); }
};
ReferenceGrid grid_of(const GptqCase& c, const std::vector<double>& w) {
  const double low = std::min(0.0, *std::min_element(w.begin(), w.end())),
               high = std::max(0.0, *std::max_element(w.begin(), w.end()));
  if (c.symmetric) return {in_half(2 * std::max(-low, high) / c.top()), (c.top() + 1) / 2, c.top()};
  const double scale = in_half((high - low) / c.top());
  return {scale, std::max(1.0, std::nearbyint(-low / scale)), c.top()};
}

// Returns the codes of one row by the algorithm without blocks and without a factor: the inverse loses a row and a
// column with every weight that is rounded.
std::vector<int64_t> reference_row(const GptqCase& c, std::vector<double> w, const std::vector<size_t>& order,
                                   const std::vector<Matrix>& inverses) {
  const size_t group = c.group_columns();
  std::vector<ReferenceGrid> grids(c.groups());
  for (size_t g = 0; c.static_groups && g < grids.size(); ++g) {
    const auto first = w.begin() + static_cast<ptrdiff_t>(g * group);
    grids[g] = grid_of(c, {first, first + static_cast<ptrdiff_t>(std::min(group, c.columns - g * group))});
  }
  std::vector<int64_t> codes(c.columns);
  for (size_t at = 0; at < c.columns; ++at) {
    const size_t g = (c.static_groups ? order[at] : at) / group;
    if (!c.static_groups && at % group == 0) {
      std::vector<double> of_group;
      for (size_t i = at; i < std::min(c.columns, at + group); ++i) of_group.push_back(w[order[i]]);
      grids[g] = grid_of(c, of_group);
    }
    const double code = grids[g].code(w[order[at]]);
    codes[order[at]] = std::lround(code);
    const double error = w[order[at]] - grids[g].scale * (code - grids[g].zero);
    const Matrix& left = inverses[at];
    for (size_t i = at + 1; i < c.columns; ++i) w[order[i]] -= error / left[at][at] * left[at][i];
  }
  return codes;
}

// Returns the inverses by the number of columns that are rounded, rows and columns in the order of rounding.
std::vector<Matrix> inverses_of(const Matrix& products, const std::vector<size_t>& order, double damp) {
  const size_t n = order.size();
  Matrix h(n, std::vector<double>(n));
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += products[i][i] / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) h[i][j] = products[order[i]][order[j]] + (i == j ? damp * mean : 0);
  }
  std::vector<Matrix> all = {inverse(h)};
  for (size_t at = 0; at + 1 < n; ++at) {
    Matrix next = all.back();
    for (size_t i = at; i < n; ++i) {
      for (size_t j = at; j < n; ++j) next[i][j] -= all.back()[i][at] * all.back()[at][j] / all.back()[at][at];
    }
    all.push_back(std::move(next));
  }
  return all;
}

class Gptq : public ::testing::TestWithParam<GptqCase> {};

// Rounding in f32 may move a weight that lies between two codes, and then those after it: a few of a hundred.
TEST_P(Gptq, EqualsTheAlgorithmInFloat64) {
  const GptqCase& c = GetParam();
  const std::vector<float> w = random_weights(c);
  const Matrix products = correlated_products(c.columns);
  const Stored stored = stored_of(written(c, w, &products), c);
  std::vector<size_t> order(c.columns);
  std::iota(order.begin(), order.end(), size_t{0});
  if (c.act_order) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return products[a][a] > products[b][b]; });
  }
  for (size_t at = 0; at < c.columns; ++at) {
    const size_t place = c.static_groups ? order[at] : at;
    ASSERT_EQ(static_cast<size_t>(stored.group_of[order[at]]), place / c.group_columns()) << at;
  }
  const std::vector<Matrix> inverses = inverses_of(products, order, 0.01);
  size_t other = 0;
  for (size_t row = 0; row < c.rows; ++row) {
    const auto first = w.begin() + static_cast<ptrdiff_t>(row * c.columns);
    const auto codes = reference_row(c, {first, first + static_cast<ptrdiff_t>(c.columns)}, order, inverses);
    for (size_t i = 0; i < c.columns; ++i) other += codes[i] != stored.codes[row * c.columns + i] ? 1 : 0;
  }
  EXPECT_LE(other, c.rows * c.columns / 100) << "codes that differ";
}

double error_of(const GptqCase& c, const std::vector<float>& w, const Matrix& stored, const Matrix& products) {
  double sum = 0;
  std::vector<double> d(c.columns);
  for (size_t row = 0; row < c.rows; ++row) {
    for (size_t i = 0; i < c.columns; ++i) d[i] = stored[row][i] - double{w[row * c.columns + i]};
    for (size_t i = 0; i < c.columns; ++i) {
      for (size_t j = 0; j < c.columns; ++j) sum += d[i] * products[i][j] * d[j];
    }
  }
  return sum;
}

// The error of the product, over all x that were observed, falls far below that of rounding.
TEST_P(Gptq, ProductsComeNearerThanByRounding) {
  const GptqCase& c = GetParam();
  const std::vector<float> w = random_weights(c);
  const Matrix products = correlated_products(c.columns);
  const double solved = error_of(c, w, stored_of(written(c, w, &products), c).weights, products);
  const double rounded = error_of(c, w, stored_of(written(c, w, nullptr), c).weights, products);
  EXPECT_LT(solved, 0.5 * rounded);
}

// Columns that have nothing to do with each other cannot make up for each other.
TEST_P(Gptq, RoundsToNearestWhereColumnsAreIndependent) {
  GptqCase c = GetParam();
  if (c.act_order && !c.static_groups) c.act_order = false;  // groups would be of other columns
  const std::vector<float> w = random_weights(c);
  Matrix products(c.columns, std::vector<double>(c.columns));
  for (size_t i = 0; i < c.columns; ++i) products[i][i] = i % 7 == 3 ? 0 : 1 + double(i % 11);
  EXPECT_EQ(written(c, w, &products), written(c, w, nullptr));
}

INSTANTIATE_TEST_SUITE_P(Forms, Gptq,
                         ::testing::Values(GptqCase{}, GptqCase{.bits = 3, .group = 64}, GptqCase{.bits = 2},
                                           GptqCase{.bits = 8, .group = 128}, GptqCase{.group = -1},
                                           GptqCase{.act_order = true}, GptqCase{.symmetric = true},
                                           GptqCase{.bits = 3, .act_order = true, .static_groups = true},
                                           GptqCase{.group = 128, .rows = 160, .columns = 288}));

TEST(GptqWriting, RefusesWhatItsFormHasNot) {
  const GptqCase c;
  std::vector<float> w = random_weights(c);
  w[7] = 3e6F;
  const Matrix products = correlated_products(c.columns);
  expect_error(ErrorCode::kModel, {"row 0", "too large for a scale in f16"}, [&] { written(c, w, &products); });
  Matrix infinite = products;
  infinite[3][3] = INFINITY;
  w[7] = 0;
  expect_error(ErrorCode::kPlugin, {"not finite"}, [&] { written(c, w, &infinite); });
  const auto registry = schemes();
  const QuantizeTarget gptq = target("gptq", *registry);
  const auto refusal = [&](ModelMatrix m) { return std::get<std::string>(gptq.scheme->describe(m)); };
  EXPECT_NE(refusal({.path = "embedding", .name = "e", .rows = 64, .columns = 64, .lookup = true}).find("embeddings"),
            std::string::npos);
  EXPECT_NE(refusal({.path = "lm_head", .name = "h", .rows = 64, .columns = 64}).find("the head"), std::string::npos);
  EXPECT_NE(refusal({.path = "x", .name = "x", .rows = 12, .columns = 64}).find("12 rows of 64 weights of 4 bits"),
            std::string::npos);
}

}  // namespace
}  // namespace tenon::test
