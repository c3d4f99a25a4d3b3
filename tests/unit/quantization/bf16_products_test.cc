// This tests rows of x in bf16 and their products with rows of weights in bf16.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel_tables.h"
#include "tenon/sdk/convert.h"

namespace tenon::test {
namespace {

class Bf16Products : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    if ((machine_isa() & TENON_ISA_AVX512_BF16) == 0) GTEST_SKIP() << "this machine has no AVX-512 BF16";
  }
};

TEST_P(Bf16Products, EqualProductsOfTheRoundedRows) {
  constexpr uint32_t kRows = 23, kColumns = 19, kStride = 20;
  const uint32_t k = GetParam(), x_stride = static_cast<uint32_t>(sdk::cpu::padded(k));
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(size_t{kRows} * k);
  for (float& v : x) v = normal(random);
  x[0] = 1e30F;
  const std::vector<uint8_t> weights = random_rows(TENON_BF16, kColumns, k, 0.5F, random);
  std::vector<uint16_t> rounded(size_t{kRows} * x_stride);
  const auto row_of_x = [&](uint32_t r) { return &rounded[size_t{r} * x_stride]; };
  for (uint32_t r = 0; r < kRows; ++r) {
    gguf::avx512_bf16::kBf16.convert(&x[size_t{r} * k], k, row_of_x(r));
    for (uint32_t i = 0; i < k; ++i) ASSERT_EQ(row_of_x(r)[i], sdk::float_to_bf16(x[size_t{r} * k + i]));
  }
  const auto product = gguf::avx512_bf16::kBf16.product;
  std::vector<float> y(kRows * kStride, NAN), w(k);
  product({weights.data(), size_t{2} * k, kColumns, kRows, k, rounded.data(), x_stride, y.data(), kStride});
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t c = 0; c < kColumns; ++c) {
      sdk::unpack_row(TENON_BF16, &weights[size_t{2} * c * k], k, w.data());
      double sum = 0, size = 0;
      for (uint32_t i = 0; i < k; ++i) {
        const double p = double{w[i]} * double{sdk::bf16_to_float(row_of_x(r)[i])};
        sum += p;
        size += std::abs(p);
      }
      ASSERT_NEAR(double{y[r * kStride + c]}, sum, 4e-6 * size) << "row " << r << " column " << c;
    }
    for (const uint32_t some : {1u, 2u, 5u}) {
      if (r + some > kRows) continue;
      std::vector<float> alone(size_t{some} * kStride, NAN);
      product({weights.data(), size_t{2} * k, kColumns, some, k, row_of_x(r), x_stride, alone.data(), kStride});
      for (uint32_t i = 0; i < some * kStride; ++i) {
        if (i % kStride < kColumns) {
          ASSERT_EQ(alone[i], y[r * kStride + i]) << some << " rows from " << r;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Bf16Products, testing::Values(1, 31, 32, 33, 576, 1000));

}  // namespace
}  // namespace tenon::test
