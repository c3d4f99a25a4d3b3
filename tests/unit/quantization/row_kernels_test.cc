// row_kernels.h promises one order of summation, so the same bits from every table, for one row or many, one column or
// many; and results close to float64.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel_tables.h"

namespace tenon::test {
namespace {

using sdk::cpu::KernelTable;
using sdk::cpu::padded;
using sdk::cpu::RowFormat;

// These are guarded: the last byte of each is the last byte of its memory, which AddressSanitizer watches.
struct Problem {
  uint32_t rows, columns, k;
  std::vector<uint8_t> weights;
  size_t row_bytes;
  std::vector<float> x;
};
struct ProblemShape {
  uint32_t rows, columns, k;  // rows of x and of weights, and their elements
};
Problem make_problem(tenon_format format, const ProblemShape& shape, float scale, uint32_t seed) {
  const auto [rows, columns, k] = shape;
  std::mt19937 random(seed);
  Problem p{rows, columns, k, random_rows(format, columns, k, scale, random), 0, {}};
  p.row_bytes = p.weights.size() / columns;
  std::normal_distribution<float> normal;
  p.x.resize(size_t{rows} * k);
  for (float& v : p.x) v = normal(random);
  return p;
}

std::vector<float> one_by_one(const KernelTable& t, const RowFormat& f, const Problem& p) {
  std::vector<float> y(size_t{p.rows} * p.columns, NAN);
  for (uint32_t r = 0; r < p.rows; ++r) {
    f.vector_product({p.weights.data(), p.row_bytes, p.columns, p.k, &p.x[size_t{r} * p.k], &y[size_t{r} * p.columns]});
  }
  (void)t;
  return y;
}

std::vector<float> tiled(const KernelTable& t, const RowFormat& f, const Problem& p) {
  std::vector<float> y(size_t{p.rows} * p.columns, NAN), w(p.columns * padded(p.k)), scale(p.columns);
  for (uint32_t c = 0; c < p.columns; ++c) {
    scale[c] = f.unpack(&p.weights[c * p.row_bytes], p.k, &w[c * padded(p.k)]);
  }
  t.tile_product({w.data(), padded(p.k), scale.data(), p.columns, p.rows, p.k, p.x.data(), p.k, y.data(), p.columns});
  return y;
}

// Returns |y - exact| over the sum of |w x|: what rounding of k products can do.
double worst_error(const Problem& p, tenon_format format, const std::vector<float>& y) {
  double worst = 0;
  std::vector<float> w(p.k);
  for (uint32_t c = 0; c < p.columns; ++c) {
    sdk::unpack_row(format, &p.weights[c * p.row_bytes], p.k, w.data());
    for (uint32_t r = 0; r < p.rows; ++r) {
      double sum = 0, magnitude = 0;
      for (uint32_t i = 0; i < p.k; ++i) {
        const double product = double{w[i]} * double{p.x[size_t{r} * p.k + i]};
        sum += product;
        magnitude += std::abs(product);
      }
      worst = std::max(worst, std::abs(y[size_t{r} * p.columns + c] - sum) / (magnitude + 1e-300));
    }
  }
  return worst;
}

class RowKernels : public testing::TestWithParam<tenon_format> {
 protected:
  // Returns widths that the format can have, odd ones among them.
  static std::vector<uint32_t> widths() {
    const uint32_t block = tenon_format_block(GetParam()).elements;
    if (block == 1) return {1, 7, 15, 16, 17, 31, 33, 160, 577};
    return {block, 2 * block, 3 * block, 7 * block};
  }
};

TEST_P(RowKernels, SameBitsFromEveryTableAloneAndTogether) {
  for (const uint32_t k : widths()) {
    for (const uint32_t columns : {1u, 2u, 5u, 9u, 17u}) {
      const Problem p = make_problem(GetParam(), {13, columns, k}, 0.1F, k * 31 + columns);
      const std::vector<float> reference =
          one_by_one(gguf::scalar::kKernels, *gguf::scalar::kKernels.find(GetParam()), p);
      EXPECT_LT(worst_error(p, GetParam(), reference), 4e-7) << "k " << k;
      for (const NamedTable& table : gguf_tables()) {
        SCOPED_TRACE(table.name + " k " + std::to_string(k) + " columns " + std::to_string(columns));
        const RowFormat* format = table.kernels->find(GetParam());
        ASSERT_NE(format, nullptr);
        ASSERT_EQ(one_by_one(*table.kernels, *format, p), reference);
        ASSERT_EQ(tiled(*table.kernels, *format, p), reference);
      }
    }
  }
}

TEST_P(RowKernels, AnyNumberOfRowsGivesTheSameBits) {
  const uint32_t k = widths().back();
  const Problem all = make_problem(GetParam(), {20, 11, k}, 0.1F, 3);
  for (const NamedTable& table : gguf_tables()) {
    const RowFormat& format = *table.kernels->find(GetParam());
    const std::vector<float> expected = one_by_one(*table.kernels, format, all);
    for (uint32_t rows = 1; rows <= 20; ++rows) {
      Problem some = all;
      some.rows = rows;
      some.x.resize(size_t{rows} * k);
      const std::vector<float> y = tiled(*table.kernels, format, some);
      ASSERT_TRUE(std::equal(y.begin(), y.end(), expected.begin())) << table.name << " " << rows << " rows";
    }
  }
}

TEST_P(RowKernels, ExtremeScalesStayExact) {
  for (const float scale : {0.0F, 3e-7F, 6e4F}) {  // zeros, subnormal halves, near the largest half
    const Problem p = make_problem(GetParam(), {3, 6, widths().back()}, scale, 5);
    for (const NamedTable& table : gguf_tables()) {
      const std::vector<float> y = one_by_one(*table.kernels, *table.kernels->find(GetParam()), p);
      EXPECT_EQ(y, one_by_one(gguf::scalar::kKernels, *gguf::scalar::kKernels.find(GetParam()), p)) << table.name;
      EXPECT_LT(worst_error(p, GetParam(), y), 4e-7) << table.name << " scale " << scale;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RowKernels, testing::ValuesIn(kFileFormats),
                         [](const auto& param) { return std::string(tenon_format_name(param.param)); });

TEST(RowKernels, EveryHalfUnpacksAsTheReference) {
  std::vector<uint16_t> all;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    if ((h & 0x7c00u) != 0x7c00u) all.push_back(static_cast<uint16_t>(h));  // it is finite
  }
  all.resize(all.size() / 16 * 16);
  for (const NamedTable& table : gguf_tables()) {
    std::vector<float> got(all.size());
    table.kernels->find(TENON_F16)->unpack(reinterpret_cast<const uint8_t*>(all.data()),
                                           static_cast<uint32_t>(all.size()), got.data());
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(got[i], sdk::half_to_float(all[i])) << table.name;
  }
}

}  // namespace
}  // namespace tenon::test
