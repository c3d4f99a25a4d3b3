// Rows of x in int8, their integer products, and SiLU.
#include "tenon/sdk/cpu/int8_activations.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernel_tables.h"
#include "tenon/sdk/cpu/activation.h"

namespace tenon::test {
namespace {

using sdk::cpu::Int8Table;
using sdk::cpu::kInt8Block;

struct Rows {
  std::vector<int8_t> q;
  std::vector<float> scale, sum;
};
Rows quantized(const std::vector<float>& x, uint32_t k) {
  Rows r;
  r.q.resize(x.size()), r.scale.resize(x.size() / kInt8Block), r.sum.resize(x.size() / kInt8Block);
  for (size_t at = 0; at < x.size(); at += k) {
    sdk::cpu::quantize_activations(&x[at], k, &r.q[at], &r.scale[at / kInt8Block], &r.sum[at / kInt8Block]);
  }
  return r;
}

TEST(Int8Activations, AreOffByHalfAStep) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(32 * 50);
  for (float& v : x) v = normal(random);
  const Rows r = quantized(x, static_cast<uint32_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::abs(static_cast<float>(r.q[i]) * r.scale[i / 32] - x[i]), r.scale[i / 32] * 0.50001F);
  }
  for (size_t b = 0; b < 50; ++b) {
    int sum = 0, largest = 0;
    for (size_t i = 32 * b; i < 32 * b + 32; ++i) sum += r.q[i], largest = std::max(largest, std::abs(int{r.q[i]}));
    EXPECT_EQ(r.sum[b], r.scale[b] * static_cast<float>(sum));
    EXPECT_EQ(largest, 127);
  }
}

TEST(Int8Activations, ZerosSubnormalsAndInfinities) {
  for (const float v : {0.0F, -0.0F, 1e-45F, 1e-40F}) {
    const Rows r = quantized(std::vector<float>(32, v), 32);
    EXPECT_TRUE(std::isfinite(r.sum[0]));
    EXPECT_LE(std::abs(r.scale[0]), 1e-40F);
  }
  const Rows largest = quantized(std::vector<float>(32, -3.4e38F), 32);
  EXPECT_EQ(largest.q[0], -127);
  for (const float v : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> x(32, 1.0F);
    x[7] = v;
    const Rows r = quantized(x, 32);
    EXPECT_TRUE(std::isnan(r.scale[0]) && std::isnan(r.sum[0]));
  }
}

std::vector<std::pair<std::string, const Int8Table*>> int8_tables() {
  std::vector<std::pair<std::string, const Int8Table*>> all{{"scalar", &gguf::kScalarInt8}};
  if ((machine_isa() & TENON_ISA_AVX2) != 0) all.emplace_back("avx2", &gguf::kAvx2Int8);
  if ((machine_isa() & TENON_ISA_AVX512_VNNI) != 0) all.emplace_back("avx512vnni", &gguf::kAvx512VnniInt8);
  return all;
}

class Int8Products : public testing::TestWithParam<tenon_format> {};

TEST_P(Int8Products, EqualProductsOfTheRoundedRows) {
  constexpr uint32_t kRows = 7, kColumns = 9, kWidth = 224;
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kWidth);
  for (float& v : x) v = normal(random);
  const Rows rows = quantized(x, kWidth);
  std::vector<uint8_t> weights = random_rows(GetParam(), kColumns, kWidth, 0.1F, random);
  std::fill(weights.begin() + 8, weights.begin() + 18, uint8_t{0x80});  // -128 times anything
  const size_t row_bytes = weights.size() / kColumns;
  std::vector<float> first;
  for (const auto& [name, table] : int8_tables()) {
    SCOPED_TRACE(name);
    const auto product = table->find(GetParam())->product;
    std::vector<float> y(kRows * kColumns, NAN), w(kWidth);
    product({weights.data(), row_bytes, kColumns, kRows, kWidth, rows.q.data(), rows.scale.data(), rows.sum.data(),
             y.data(), kColumns});
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t c = 0; c < kColumns; ++c) {
        sdk::cpu::unpack_row(GetParam(), &weights[c * row_bytes], kWidth, w.data());
        double sum = 0, size = 0;
        for (uint32_t i = 0; i < kWidth; ++i) {
          const size_t at = r * kWidth + i;
          const double p = double{w[i]} * rows.q[at] * double{rows.scale[at / 32]};
          sum += p, size += std::abs(p);
        }
        ASSERT_NEAR(double{y[r * kColumns + c]}, sum, 2e-6 * size) << "row " << r << " column " << c;
      }
      std::vector<float> alone(kColumns, NAN);
      product({weights.data(), row_bytes, kColumns, 1, kWidth, &rows.q[r * kWidth], &rows.scale[r * kWidth / 32],
               &rows.sum[r * kWidth / 32], alone.data(), kColumns});
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * kColumns)) << "row " << r;
    }
    if (first.empty()) first = y;
    EXPECT_EQ(y, first);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Int8Products,
                         testing::Values(TENON_Q4_0, TENON_Q4_1, TENON_Q5_0, TENON_Q5_1, TENON_Q8_0),
                         [](const auto& param) { return std::string(tenon_format_name(param.param)); });

TEST(Silu, EqualsItsFormula) {
  for (int i = -7000; i <= 7000; ++i) {
    const float a = static_cast<float>(i) / 70;
    const double exact = double{a} / (1 + std::exp(-double{a}));
    EXPECT_NEAR(double{sdk::cpu::silu(a)}, exact, 1e-6 * std::abs(exact) + 1e-35) << a;
  }
  EXPECT_EQ(sdk::cpu::silu(0), 0);
  EXPECT_TRUE(std::isnan(sdk::cpu::silu(NAN)));
}

}  // namespace
}  // namespace tenon::test
