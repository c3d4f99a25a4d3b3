// This tests rows of x in int8, their integer products, and SiLU.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel_tables.h"
#include "packings.h"
#include "tenon/sdk/cpu/activation.h"
#include "tenon/sdk/cpu/gelu.h"

namespace tenon::test {
namespace {

using sdk::cpu::kGroupRows, sdk::cpu::kInt8Block, sdk::cpu::PackedTable, sdk::cpu::Packing, sdk::cpu::RowOps;

struct Rows {
  Rows(const RowOps& ops, const std::vector<float>& x, uint32_t width) : k(width), q(x.size()) {
    const size_t blocks = x.size() / kInt8Block;
    scale.resize(blocks);
    sum.resize(blocks);
    negative32.resize(blocks);
    negative16.resize(2 * blocks);
    for (size_t at = 0; at < x.size(); at += k) {
      const size_t b = at / kInt8Block;
      ops.quantize(&x[at], k, {&q[at], &scale[b], &sum[b], &negative32[b], &negative16[2 * b]});
    }
  }
  sdk::cpu::Int8Rows from(uint32_t row) const {
    const size_t b = size_t{row} * k / kInt8Block;
    return {k, &q[b * kInt8Block], &scale[b], &sum[b], &negative32[b], &negative16[2 * b]};
  }
  uint32_t k;
  std::vector<int8_t> q;
  std::vector<float> scale, sum;
  std::vector<int32_t> negative32, negative16;
};
Rows quantized(const std::vector<float>& x) {
  return {gguf::scalar::kKernels.ops, x, static_cast<uint32_t>(x.size())};
}

TEST(Int8Rows, AreOffByHalfAStep) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(32 * 50);
  for (float& v : x) v = normal(random);
  const Rows r = quantized(x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::abs(static_cast<float>(r.q[i]) * r.scale[i / 32] - x[i]), r.scale[i / 32] * 0.50001F);
  }
  for (size_t b = 0; b < 50; ++b) {
    int half[2] = {}, largest = 0;
    for (size_t i = 0; i < 32; ++i)
      half[i / 16] += r.q[32 * b + i], largest = std::max(largest, std::abs(int{r.q[32 * b + i]}));
    EXPECT_EQ(r.sum[b], r.scale[b] * static_cast<float>(half[0] + half[1]));
    EXPECT_EQ(r.negative32[b], -half[0] - half[1]);
    EXPECT_EQ(r.negative16[2 * b], -half[0]);
    EXPECT_EQ(r.negative16[2 * b + 1], -half[1]);
    EXPECT_EQ(largest, 127);
  }
}

TEST(Int8Rows, OfZerosSubnormalsAndInfinities) {
  for (const float v : {0.0F, -0.0F, 1e-45F, 1e-40F}) {
    const Rows r = quantized(std::vector<float>(32, v));
    EXPECT_TRUE(std::isfinite(r.sum[0]));
    EXPECT_LE(std::abs(r.scale[0]), 1e-40F);
  }
  const Rows largest = quantized(std::vector<float>(32, -3.4e38F));
  EXPECT_EQ(largest.q[0], -127);
  for (const float v : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> x(32, 1.0F);
    x[7] = v;
    const Rows r = quantized(x);
    EXPECT_TRUE(std::isnan(r.scale[0]) && std::isnan(r.sum[0]));
  }
}

struct Split {
  Split(const RowOps& ops, const std::vector<float>& x) {
    const uint32_t blocks = sdk::cpu::int16_blocks(static_cast<uint32_t>(x.size()));
    q.resize(size_t{blocks} * 64);
    scale.resize(blocks);
    sum.resize(blocks);
    negative.resize(size_t{blocks} * 2);
    words.resize(size_t{blocks} * 32);
    ops.split(x.data(), static_cast<uint32_t>(x.size()),
              {q.data(), scale.data(), sum.data(), negative.data(), words.data()});
  }
  int at(size_t i) const { return 256 * q[i / 32 * 64 + i % 32] + q[i / 32 * 64 + 32 + i % 32]; }
  std::vector<int8_t> q;
  std::vector<float> scale, sum;
  std::vector<int32_t> negative;
  std::vector<int16_t> words;
};

TEST(Int16Rows, AreOffByHalfAStepAndFilledUpWithZeros) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (const size_t k : {1U, 31U, 32U, 33U, 300U, 512U}) {
    std::vector<float> x(k);
    for (float& v : x) v = normal(random);
    x[k / 2] = -20;
    const Split r(gguf::scalar::kKernels.ops, x);
    ASSERT_EQ(r.scale.size() % 8, 0U);
    for (size_t b = 0; b < r.scale.size(); ++b) {
      int high = 0, low = 0, largest = 0;
      for (size_t i = 32 * b; i < 32 * b + 32; ++i) {
        const float value = i < k ? x[i] : 0;
        EXPECT_LE(std::abs(static_cast<float>(r.at(i)) * r.scale[b] - value), r.scale[b] * 0.501F) << k << ' ' << i;
        constexpr uint32_t kPlaces[] = {0, 2, 1, 3};
        EXPECT_EQ(r.words[i / 4 * 4 + kPlaces[i % 4]], r.at(i));
        high += r.q[64 * b + i % 32];
        low += r.q[64 * b + 32 + i % 32];
        largest = std::max(largest, std::abs(r.at(i)));
      }
      EXPECT_EQ(r.negative[2 * b], -high);
      EXPECT_EQ(r.negative[2 * b + 1], -low);
      EXPECT_EQ(r.sum[b], r.scale[b] * static_cast<float>(256 * high + low));
      EXPECT_EQ(largest, 32 * b < k ? 32639 : 0);
    }
  }
}

TEST(Int16Rows, SameBitsOnEveryInstructionSet) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 20);
  std::vector<float> x(1000);
  for (float& v : x) v = normal(random);
  std::fill(x.begin() + 64, x.begin() + 96, 0.0F);
  x[1] = 1e-42F;
  x[40] = 3e38F;
  const Split want(gguf::scalar::kKernels.ops, x);
  for (const auto& [name, table] : gguf_tables()) {
    const Split got(table->ops, x);
    EXPECT_EQ(got.q, want.q) << name;
    EXPECT_EQ(got.scale, want.scale) << name;
    EXPECT_EQ(got.sum, want.sum) << name;
    EXPECT_EQ(got.negative, want.negative) << name;
    EXPECT_EQ(got.words, want.words) << name;
  }
  for (const float v : {INFINITY, -INFINITY, NAN}) {
    x[7] = v;
    for (const auto& [name, table] : gguf_tables()) {
      const Split r(table->ops, x);
      EXPECT_TRUE(std::isnan(r.scale[0]) && std::isnan(r.sum[0])) << name;
      EXPECT_FALSE(std::isnan(r.scale[1])) << name;
    }
  }
}

TEST(RowOps, SameBitsOnEveryInstructionSet) {
  constexpr uint32_t kWidth = 1056;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 20);
  std::vector<float> x(kWidth), weight(kWidth);
  for (float& v : x) v = normal(random);
  for (float& v : weight) v = normal(random);
  std::fill(x.begin() + 64, x.begin() + 96, 0.0F);
  x[1] = 1e-42F;
  x[40] = 3e38F;
  x[100] = NAN;
  x[140] = -INFINITY;
  const RowOps& scalar = gguf::scalar::kKernels.ops;
  const Rows want(scalar, x, kWidth);
  for (const uint32_t n : {1u, 7u, 8u, 33u, 99u, kWidth}) {
    for (const auto& [name, table] : gguf_tables()) {
      SCOPED_TRACE(testing::Message() << name << ", " << n);
      const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
        for (size_t i = 0; i < a.size(); ++i) {
          if (std::isnan(a[i]) ? !std::isnan(b[i]) : a[i] != b[i]) return false;
        }
        return true;
      };
      std::vector<float> a(n), b(n), gate(x.begin(), x.begin() + n), other = gate;
      scalar.rms_norm(x.data() + 200 % n, weight.data(), n - 200 % n, 1e-5F, a.data());
      table->ops.rms_norm(x.data() + 200 % n, weight.data(), n - 200 % n, 1e-5F, b.data());
      EXPECT_TRUE(same(a, b));
      scalar.silu_mul(gate.data(), weight.data(), n);
      table->ops.silu_mul(other.data(), weight.data(), n);
      EXPECT_TRUE(same(gate, other));
      const Rows got(table->ops, x, kWidth);
      EXPECT_EQ(got.q, want.q);
      EXPECT_TRUE(same(got.scale, want.scale) && same(got.sum, want.sum));
      EXPECT_EQ(got.negative32, want.negative32);
      EXPECT_EQ(got.negative16, want.negative16);
    }
  }
}

std::vector<std::pair<std::string, const PackedTable*>> packed_tables() {
  std::vector<std::pair<std::string, const PackedTable*>> all{{"scalar", &gguf::scalar::kPacked}};
  if ((machine_isa() & TENON_ISA_AVX2) != 0) all.emplace_back("avx2", &gguf::avx2::kPacked);
  if ((machine_isa() & TENON_ISA_AVX_VNNI) != 0) all.emplace_back("avxvnni", &gguf::avx_vnni::kPacked);
  if ((machine_isa() & TENON_ISA_AVX512_VNNI) != 0) all.emplace_back("avx512vnni", &gguf::avx512_vnni::kPacked);
  return all;
}

// Weights have the given size: usual ones, next to the greatest halves, and denormal halves.
class PackedProducts : public testing::TestWithParam<std::tuple<tenon_format, float>> {};

TEST_P(PackedProducts, EqualProductsOfTheRoundedRows) {
  const auto [format, size_of_weights] = GetParam();
  constexpr uint32_t kRows = 15, kColumns = 41, kWidth = 768, kStride = 48;
  const Packing& packing = *gguf::packing_of(format);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kWidth);
  for (float& v : x) v = normal(random);
  std::fill(x.begin(), x.begin() + 64, 127.0F);  // the largest sums
  const Rows rows(gguf::scalar::kKernels.ops, x, kWidth);
  std::vector<uint8_t> weights = random_rows(format, kColumns, kWidth, size_of_weights, random);
  const size_t row_bytes = weights.size() / kColumns, header = format == TENON_Q4_K ? 16 : format == TENON_Q4_1 ? 4 : 2;
  if (format == TENON_Q6_K) {
    std::fill_n(weights.begin(), 192, uint8_t{0});
    std::fill_n(weights.begin() + 192, 16, uint8_t{0x80});
  } else {
    std::fill_n(weights.begin() + static_cast<std::ptrdiff_t>(header), 16, uint8_t{0x80});
  }
  std::vector<uint8_t> store(packing.bytes_of_row(kWidth) * kStride);
  for (uint32_t c = 0; c < kColumns; ++c)
    sdk::cpu::pack_row(packing, {&weights[c * row_bytes], row_bytes}, kWidth, c, store.data());
  std::vector<float> first;
  for (const auto& [name, table] : packed_tables()) {
    SCOPED_TRACE(name);
    const auto product = table->find(packing.code)->product;
    const size_t group_bytes = kGroupRows * packing.bytes_of_row(kWidth);
    std::vector<float> y(kRows * kStride, NAN), w(kWidth);
    product({store.data(), group_bytes, kColumns, kRows, rows.from(0), y.data(), kStride});
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t c = 0; c < kColumns; ++c) {
        sdk::unpack_row(format, &weights[c * row_bytes], kWidth, w.data());
        double sum = 0, size = 0;
        for (uint32_t i = 0; i < kWidth; ++i) {
          const size_t at = r * kWidth + i;
          const double p = double{w[i]} * rows.q[at] * double{rows.scale[at / 32]};
          sum += p;
          size += std::abs(p);
        }
        ASSERT_NEAR(double{y[r * kStride + c]}, sum, 4e-6 * size) << "row " << r << " column " << c;
      }
      std::vector<float> alone(kStride, NAN);
      product({store.data(), group_bytes, kColumns, 1, rows.from(r), alone.data(), kStride});
      ASSERT_TRUE(std::equal(alone.begin(), alone.begin() + kColumns, y.begin() + r * kStride)) << "row " << r;
    }
    for (uint32_t r = 0; r < kRows; ++r) std::fill_n(y.begin() + r * kStride + kColumns, kStride - kColumns, 0.0F);
    if (first.empty()) first = y;
    EXPECT_EQ(y, first);
  }
}

std::string label(const testing::TestParamInfo<PackedProducts::ParamType>& info) {
  const float size = std::get<1>(info.param);
  return std::string(tenon_format_name(std::get<0>(info.param))) + (size > 1 ? "_great" : size < 1e-3F ? "_small" : "");
}
INSTANTIATE_TEST_SUITE_P(Formats, PackedProducts,
                         testing::Combine(testing::Values(TENON_Q4_0, TENON_Q4_1, TENON_Q5_0, TENON_Q8_0, TENON_Q4_K,
                                                          TENON_Q6_K),
                                          testing::Values(0.1F, 6e4F, 4e-6F)),
                         label);

TEST(Gelu, EqualsItsFormula) {
  for (int i = -7000; i <= 7000; ++i) {
    const float a = static_cast<float>(i) / 350;
    const double x = a, exact = x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    EXPECT_NEAR(double{sdk::cpu::gelu(a)}, exact, 5e-7 * std::abs(x)) << a;
  }
  EXPECT_TRUE(std::isnan(sdk::cpu::gelu(NAN)));
  EXPECT_EQ(sdk::cpu::gelu(1e30F), 1e30F);
}

TEST(Silu, EqualsItsFormula) {
  for (int i = -7000; i <= 7000; ++i) {
    const float a = static_cast<float>(i) / 70;
    const double exact = double{a} / (1 + std::exp(-double{a}));
    EXPECT_NEAR(double{sdk::cpu::silu(a)}, exact, 1e-6 * std::abs(exact) + 2e-36) << a;
  }
  EXPECT_EQ(sdk::cpu::silu(0), 0);
  EXPECT_TRUE(std::isnan(sdk::cpu::silu(NAN)));
}

}  // namespace
}  // namespace tenon::test
