// quantization.awq writes factors, grids and codes that follow from the rows of x, by the algorithm in float64.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <list>
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

struct AwqCase {
  int64_t group = 32;
  size_t rows = 24, columns = 96, tied = 1;  // tied: so many columns side by side share a factor
  const char* path = "layers.0.mlp.up";

  size_t group_columns() const { return group > 0 ? static_cast<size_t>(group) : columns; }
  size_t groups() const { return columns / group_columns(); }
  std::vector<uint32_t> ties() const {
    std::vector<uint32_t> ties;
    for (size_t i = 0; i < columns; ++i) ties.push_back(static_cast<uint32_t>(i / tied));
    return ties;
  }
  ModelMatrix matrix() const {
    return {.path = path,
            .name = "m",
            .known = true,
            .rows = static_cast<int64_t>(rows),
            .columns = static_cast<int64_t>(columns)};
  }
};

Matrix normal_matrix(size_t rows, size_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05F);
  Matrix m(rows, std::vector<double>(columns));
  for (auto& row : m) {
    for (double& v : row) v = double{normal(random)};
  }
  return m;
}

// Returns rows of x, a few of whose columns are far larger than the others, as models have them.
Matrix inputs(size_t columns) {
  Matrix x = normal_matrix(300, columns, 7);
  for (auto& row : x) {
    for (size_t i = 0; i < columns; ++i) row[i] *= i % 13 == 4 ? 60 : 1 + static_cast<double>(i % 5);
  }
  return x;
}

std::vector<float> flat(const Matrix& m) {
  std::vector<float> all;
  for (const auto& row : m) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// Returns the state that observe() makes of x.
std::vector<uint8_t> state_of(const Matrix& x) {
  const size_t k = x.front().size();
  std::vector<uint8_t> state(calibrated::moments_bytes(k));
  const auto put = [&](size_t at, const auto& value) { std::memcpy(state.data() + at, &value, sizeof(value)); };
  for (size_t i = 0; i < k; ++i) {
    double magnitude = 0;
    for (const auto& row : x) magnitude += std::abs(row[i]);
    put(calibrated::magnitudes_offset(k) + i * sizeof(double), magnitude);
    for (size_t j = i; j < k; ++j) {
      double sum = 0;
      for (const auto& row : x) sum += row[i] * row[j];
      put((i * k + j) * sizeof(float), static_cast<float>(sum));
    }
  }
  put(state.size() - sizeof(double), static_cast<double>(x.size()));
  return state;
}

double in_half(double x) {
  return sdk::half_to_float(sdk::float_to_half(static_cast<float>(x)));
}

struct ReferenceGrid {
  double scale = 0, zero = 0;
  double code(double w) const { return std::clamp(std::nearbyint(w / scale) + zero, 0.0, 15.0); }
  double value(double w) const { return scale * (code(w) - zero); }
};
ReferenceGrid grid_of(const double* w, size_t n, double share) {
  double low = 0, high = 0;
  for (size_t i = 0; i < n; ++i) {
    low = std::min(low, w[i]);
    high = std::max(high, w[i]);
  }
  const double end = share * std::max(-low, high), scale = in_half((std::min(high, end) - std::max(low, -end)) / 15);
  return {scale, std::nearbyint(-std::max(low, -end) / scale)};
}

// Returns the sum over rows of x of the squared errors of the products with the columns from `first` on.
double error_of(const Matrix& x, const std::vector<double>& error, size_t first) {
  double sum = 0;
  for (const auto& row : x) {
    double product = 0;
    for (size_t i = 0; i < error.size(); ++i) product += row[first + i] * error[i];
    sum += product * product;
  }
  return sum;
}

// These matrices are multiplied by these rows of x: all of a site, or an expert's.
struct Products {
  std::vector<Matrix> matrices;
  Matrix x;
};

// Returns the factors of the power whose rounded matrices have the least error, tried by products with every row of x.
std::vector<double> reference_factors(const AwqCase& c, const std::vector<Products>& sets) {
  std::vector<double> mean(c.columns), best;
  size_t rows = 0;
  for (const Products& set : sets) rows += set.x.size();
  for (size_t i = 0; i < c.columns; ++i) {
    for (size_t t = i / c.tied * c.tied; t < (i / c.tied + 1) * c.tied; ++t) {
      for (const Products& set : sets) {
        for (const auto& row : set.x) mean[i] += std::abs(row[t]) / static_cast<double>(rows * c.tied);
      }
    }
  }
  double least = INFINITY;
  for (int power = 0; power < 20; ++power) {
    std::vector<double> s;
    for (const double m : mean) s.push_back(std::pow(m, power / 20.0));
    const double middle = std::sqrt(*std::min_element(s.begin(), s.end()) * *std::max_element(s.begin(), s.end()));
    for (double& v : s) v /= middle;
    double error = 0;
    const auto add = [&](const std::vector<double>& row, const Matrix& x) {
      std::vector<double> scaled, d;
      for (size_t i = 0; i < c.columns; ++i) scaled.push_back(row[i] * s[i]);
      for (size_t i = 0; i < c.columns; ++i) {
        const size_t first = i / c.group_columns() * c.group_columns();
        d.push_back(grid_of(&scaled[first], c.group_columns(), 1).value(scaled[i]) / s[i] - row[i]);
      }
      error += error_of(x, d, 0);
    };
    for (const Products& set : sets) {
      for (const Matrix& m : set.matrices) {
        for (const auto& row : m) add(row, set.x);
      }
    }
    if (error >= least) continue;
    least = error;
    best = s;
  }
  return best;
}

// Several sets belong to experts; nothing was observed of an expert without rows.
std::vector<float> factors(const AwqCase& c, const std::vector<Products>& sets) {
  const auto registry = schemes();
  const QuantizeTarget awq = target("awq", *registry, {{"group_size", std::to_string(c.group)}});
  const std::vector<uint32_t> ties = c.ties();
  SharedColumns shared{.matrices = {}, .data = {}, .observed = {}, .tied = ties, .routed = sets.size() > 1};
  std::list<ModelMatrix> described;
  std::list<std::vector<float>> weights;
  std::list<std::vector<uint8_t>> states;
  for (const Products& set : sets) {
    for (const Matrix& m : set.matrices) {
      described.push_back(c.matrix());
      described.back().rows = static_cast<int64_t>(m.size());
      shared.matrices.push_back(&described.back());
      shared.data.push_back(weights.emplace_back(flat(m)).data());
    }
    states.push_back(set.x.empty() ? std::vector<uint8_t>() : state_of(set.x));
    shared.observed.push_back(std::as_bytes(std::span(states.back())));
  }
  return awq.scheme->column_factors(shared);
}
std::vector<float> factors(const AwqCase& c, const std::vector<Matrix>& matrices, const Matrix& x) {
  return factors(c, {{matrices, x}});
}

// These are the tensors that the scheme wrote, read by the published form's definition.
struct Stored {
  Matrix codes, weights;  // (rows, columns)
  Matrix scale, zero;     // (rows, groups)
};

double code_at(const std::vector<uint8_t>& words, size_t line, size_t rows, size_t row) {
  constexpr std::array<uint32_t, 8> kPlace = {0, 4, 1, 5,
                                              2, 6, 3, 7};  // row 0, 1, ... of these: 0, 2, 4, 6, 1, 3, 5, 7 in order
  uint32_t word = 0;
  std::memcpy(&word, words.data() + (line * rows / 8 + row / 8) * 4, 4);
  return word >> (4 * kPlace[row % 8]) & 15U;
}

// `observed` is nullptr if there was no text.
Stored written(const AwqCase& c, const Matrix& w, const std::vector<uint8_t>* observed, const float* factor = nullptr) {
  const auto registry = schemes();
  const QuantizeTarget awq = target("awq", *registry, {{"group_size", std::to_string(c.group)}});
  const auto described = std::get<MatrixDescription>(awq.scheme->describe(c.matrix()));
  std::vector<std::vector<uint8_t>> tensors;
  std::vector<void*> out;
  for (const MatrixDescription::Tensor& t : described.tensors) tensors.emplace_back(t.bytes());
  for (auto& t : tensors) out.push_back(t.data());
  const std::vector<float> data = flat(w);
  auto e = sdk::abi_struct<tenon_encode>();
  e.rows = c.rows;
  e.data = data.data();
  e.observed = observed == nullptr ? nullptr : observed->data();
  e.out = out.data();
  e.factor = factor;
  awq.scheme->encode(c.matrix(), e);
  const Matrix none(c.rows, std::vector<double>(c.columns));
  Stored s{none, none, none, none};
  for (size_t row = 0; row < c.rows; ++row) {
    for (size_t i = 0; i < c.columns; ++i) {
      const size_t g = i / c.group_columns();
      uint16_t half = 0;
      std::memcpy(&half, tensors[2].data() + (g * c.rows + row) * 2, 2);
      s.scale[row][g] = sdk::half_to_float(half);
      s.zero[row][g] = code_at(tensors[1], g, c.rows, row);
      s.codes[row][i] = code_at(tensors[0], i, c.rows, row);
      s.weights[row][i] = s.scale[row][g] * (s.codes[row][i] - s.zero[row][g]);
    }
  }
  return s;
}

class Awq : public ::testing::TestWithParam<AwqCase> {};

TEST_P(Awq, FactorsEqualTheSearchInFloat64) {
  const AwqCase& c = GetParam();
  const std::vector<Matrix> matrices = {normal_matrix(c.rows, c.columns, 1), normal_matrix(8, c.columns, 2)};
  const Matrix x = inputs(c.columns);
  const std::vector<double> expected = reference_factors(c, {{matrices, x}});
  EXPECT_GT(expected[4 / c.tied * c.tied], 1.5);  // columns of large x are scaled up
  const std::vector<float> found = factors(c, matrices, x);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << i;
}

// Each expert's matrices count by the rows that came to it; the third had none.
TEST_P(Awq, FactorsOfExpertsEqualTheSearchInFloat64) {
  const AwqCase& c = GetParam();
  const auto expert = [&](uint32_t seed, Matrix x) {
    return Products{{normal_matrix(c.rows, c.columns, seed), normal_matrix(8, c.columns, seed + 1)}, std::move(x)};
  };
  const Matrix x = inputs(c.columns);
  Matrix others(x.begin() + 200, x.end());
  for (auto& row : others) std::reverse(row.begin(), row.end());
  const std::vector<Products> experts = {expert(1, {x.begin(), x.begin() + 200}), expert(3, others), expert(5, {})};
  const std::vector<double> expected = reference_factors(c, experts);
  EXPECT_NE(expected, reference_factors(c, {experts[0]}));
  const std::vector<float> found = factors(c, experts);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << i;
}

// Rounding in f32 may move a weight that lies between two codes: a few of a hundred.
TEST_P(Awq, GridsEqualTheClippingInFloat64) {
  const AwqCase& c = GetParam();
  const Matrix x = inputs(c.columns), plain = normal_matrix(c.rows, c.columns, 1);
  const std::vector<float> s = factors(c, {plain}, x);
  Matrix w = plain, divided = x;
  for (size_t i = 0; i < c.columns; ++i) {
    for (auto& row : w) row[i] = double{static_cast<float>(row[i]) * s[i]};
    for (auto& row : divided) row[i] /= double{s[i]};
  }
  const std::vector<uint8_t> state = state_of(x);
  const Stored stored = written(c, w, &state, s.data());
  size_t other = 0, clipped = 0;
  for (size_t row = 0; row < c.rows; ++row) {
    for (size_t g = 0; g < c.groups(); ++g) {
      const double* group = &w[row][g * c.group_columns()];
      ReferenceGrid best;
      double least = INFINITY;
      for (int clip = 0; clip < 10; ++clip) {
        const ReferenceGrid grid = grid_of(group, c.group_columns(), 1 - clip / 20.0);
        std::vector<double> d;
        for (size_t i = 0; i < c.group_columns(); ++i) d.push_back(grid.value(group[i]) - group[i]);
        const double error = error_of(divided, d, g * c.group_columns());
        if (error >= least) continue;
        least = error;
        best = grid;
      }
      clipped += best.scale != grid_of(group, c.group_columns(), 1).scale ? 1 : 0;
      for (size_t i = 0; i < c.group_columns(); ++i) {
        other += best.code(group[i]) != stored.codes[row][g * c.group_columns() + i] ? 1 : 0;
      }
      if (best.scale != stored.scale[row][g] || best.zero != stored.zero[row][g]) ++other;
    }
  }
  EXPECT_GT(clipped, 0U);
  EXPECT_LE(other, c.rows * c.columns / 50) << "codes and grids that differ";
}

double error_of(const Matrix& stored, const Matrix& w, const Matrix& x) {
  double sum = 0;
  for (size_t row = 0; row < w.size(); ++row) {
    std::vector<double> d;
    for (size_t i = 0; i < w[row].size(); ++i) d.push_back(stored[row][i] - w[row][i]);
    sum += error_of(x, d, 0);
  }
  return sum;
}

TEST_P(Awq, ProductsComeNearerThanByRounding) {
  const AwqCase& c = GetParam();
  const Matrix x = inputs(c.columns), plain = normal_matrix(c.rows, c.columns, 1);
  const std::vector<float> s = factors(c, {plain}, x);
  Matrix w = plain;
  for (auto& row : w) {
    for (size_t i = 0; i < c.columns; ++i) row[i] *= double{s[i]};
  }
  const std::vector<uint8_t> state = state_of(x);
  Matrix stored = written(c, w, &state, s.data()).weights;
  for (auto& row : stored) {
    for (size_t i = 0; i < c.columns; ++i) row[i] /= double{s[i]};
  }
  EXPECT_LT(error_of(stored, plain, x), 0.5 * error_of(written(c, plain, nullptr).weights, plain, x));
}

INSTANTIATE_TEST_SUITE_P(Forms, Awq,
                         ::testing::Values(AwqCase{}, AwqCase{.group = 64, .rows = 72, .columns = 192},
                                           AwqCase{.group = 128, .columns = 128}, AwqCase{.group = -1},
                                           AwqCase{.tied = 2}));

// The ranges of Q and K are left whole.
TEST(AwqWriting, ClipsNeitherQueriesNorKeys) {
  const AwqCase q{.path = "layers.0.attention.q"}, v{.path = "layers.0.attention.v"};
  const Matrix w = normal_matrix(q.rows, q.columns, 1);
  const std::vector<uint8_t> state = state_of(inputs(q.columns));
  EXPECT_EQ(written(q, w, &state).codes, written(q, w, nullptr).codes);
  EXPECT_NE(written(v, w, &state).codes, written(v, w, nullptr).codes);
}

TEST(AwqWriting, RefusesWhatItsFormHasNot) {
  const AwqCase c;
  Matrix w = normal_matrix(c.rows, c.columns, 1);
  w[0][7] = 3e6;
  expect_error(ErrorCode::kModel, {"row 0", "too large for a scale in f16"}, [&] { written(c, w, nullptr); });
  Matrix x = inputs(c.columns);
  x[3][3] = INFINITY;
  expect_error(ErrorCode::kPlugin, {"not finite"}, [&] { factors(c, {normal_matrix(c.rows, c.columns, 1)}, x); });
  const auto registry = schemes();
  const QuantizeTarget awq = target("awq", *registry, {{"group_size", "64"}});
  const auto refusal = [&](ModelMatrix m) { return std::get<std::string>(awq.scheme->describe(m)); };
  EXPECT_NE(refusal({.path = "embedding", .name = "e", .rows = 64, .columns = 64, .lookup = true}).find("embeddings"),
            std::string::npos);
  EXPECT_NE(refusal({.path = "lm_head", .name = "h", .rows = 64, .columns = 64}).find("the head"), std::string::npos);
  EXPECT_NE(refusal({.path = "x", .name = "x", .rows = 12, .columns = 64}).find("12 rows of 64 weights"),
            std::string::npos);
  EXPECT_NE(refusal({.path = "x", .name = "x", .rows = 16, .columns = 96}).find("group_size, 64"), std::string::npos);
}

}  // namespace
}  // namespace tenon::test
