// Every word of tenon/sdk/cpu/vector.h means the same under every instruction set that the machine has.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/component.h"
#include "tenon/abi/device.h"
#include "tenon/sdk/convert.h"
#include "vector_words.h"

namespace tenon::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct NamedWords {
  std::string name;
  uint32_t width;
  VectorWords (*words)(const VectorInput&);
};
std::vector<NamedWords> all_words() {
  std::vector<NamedWords> all{{"scalar", 1, &scalar::words}};
  if ((machine_isa() & TENON_ISA_AVX2) != 0) all.push_back({"avx2", 8, &avx2::words});
  if ((machine_isa() & TENON_ISA_AVX512) != 0) all.push_back({"avx512", 16, &avx512::words});
  constexpr uint64_t kVnni = TENON_ISA_AVX512 | TENON_ISA_AVX512_VNNI;
  if ((machine_isa() & kVnni) == kVnni) all.push_back({"avx512_vnni", 16, &avx512_vnni::words});
  return all;
}

VectorInput input() {
  VectorInput in{};
  for (int i = 0; i < kMostLanes; ++i) {
    in.a[i] = 0.37f * static_cast<float>(i - 7) + 0.5f;
    in.b[i] = 1.0f / static_cast<float>(3 * i - 17);
    in.c[i] = 0.01f * static_cast<float>(i * i) - 0.2f;
    in.halves[i] = static_cast<uint16_t>(0x3c00 + 37 * i);
    in.bf16[i] = static_cast<uint16_t>(0xbf80 + i);
    in.bytes[i] = static_cast<uint8_t>(31 * i);
  }
  for (int i = 0; i < 4 * kMostLanes; ++i) in.codes[i] = static_cast<uint8_t>((7 * i) % 64);
  in.a[0] = 2.5f;  // halves go to the even number
  const int8_t x[] = {-127, 5, 100, 127};
  std::copy(std::begin(x), std::end(x), in.x);
  return in;
}

// Returns the sum of sixteen lanes, halves on halves.
float folded(const float* lanes) {
  std::array<float, kMostLanes> sum;
  std::copy_n(lanes, kMostLanes, sum.begin());
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sum[i] = sum[i] + sum[i + half];
  }
  return sum[0];
}

class VectorWordsTest : public testing::TestWithParam<NamedWords> {
 protected:
  const VectorInput in = input();
  const VectorWords out = GetParam().words(in);
};

TEST_P(VectorWordsTest, ElementsOfEveryFormatAreWhatTheirBitsSay) {
  ASSERT_EQ(out.width, GetParam().width);
  for (uint32_t i = 0; i < out.width; ++i) {
    EXPECT_EQ(out.from_f32[i], in.a[i]);
    EXPECT_EQ(out.from_f16[i], sdk::half_to_float(in.halves[i]));
    EXPECT_EQ(out.from_bf16[i], sdk::bf16_to_float(in.bf16[i]));
    EXPECT_EQ(out.from_u8[i], in.bytes[i]);
    EXPECT_EQ(out.from_i8[i], static_cast<int8_t>(in.bytes[i]));
    EXPECT_EQ(out.first_of_f32[i], i < out.width / 2 ? in.a[i] : 0);
  }
  for (uint32_t i = 0; i < kMostLanes; ++i) EXPECT_EQ(out.first16[i], i < 11 ? in.a[i] : 0);
}

TEST_P(VectorWordsTest, LanesAreComputedByThemselves) {
  float most = in.b[0];
  for (uint32_t i = 0; i < out.width; ++i) {
    const float a = in.a[i], b = in.b[i], c = in.c[i], sum = a + b, difference = sum - c;
    EXPECT_EQ(out.multiplied[i], difference * a);
    EXPECT_EQ(out.divided[i], a / b);
    EXPECT_EQ(out.most[i], std::max(a, b));
    EXPECT_EQ(out.rounded[i], std::nearbyint(a));
    EXPECT_EQ(out.signs[i], std::copysign(a, -b));
    EXPECT_EQ(out.powers[i], std::exp2(std::nearbyint(a)));
    EXPECT_EQ(out.not_below[i], a < c ? 0 : b);
    most = std::max(most, b);
  }
  EXPECT_EQ(out.largest, most);
  for (uint32_t i = 0; i < kMostLanes; ++i) EXPECT_EQ(out.fused[i], std::fma(in.a[i], in.b[i], in.c[i]));
}

TEST_P(VectorWordsTest, DoublesAreComputedByThemselves) {
  ASSERT_EQ(out.double_width, out.width > 1 ? out.width / 2 : 1);
  for (uint32_t i = 0; i < out.double_width; ++i) {
    const double a = double{in.a[i]}, b = double{in.b[i]}, product = a * b, more = double{in.c[1]} + a;
    EXPECT_EQ(out.sums[i], out.width > 1 ? std::fma(a, b, more) : product + more);
  }
}

TEST_P(VectorWordsTest, LongLanesMultiplyTheirLowHalvesAndInterleave) {
  for (uint64_t i = 0; i < out.long_lanes; ++i) {
    const uint64_t low = (1000003 * (i + 1) + (uint64_t{1} << 40)) & 0xffffffffu;
    EXPECT_EQ(out.long_products[i], low * 4000000007u);
    EXPECT_EQ(out.interleaved[2 * i], i);
    EXPECT_EQ(out.interleaved[2 * i + 1], 100 + i);
  }
}

TEST_P(VectorWordsTest, WithNanTheSecondOperandIsTaken) {
  VectorInput with_nan = in;
  with_nan.a[0] = kNan;
  const VectorWords words = GetParam().words(with_nan);
  EXPECT_EQ(words.most[0], in.b[0]);
  EXPECT_EQ(words.not_below[0], in.b[0]);
}

TEST_P(VectorWordsTest, SumsFoldHalvesOnHalves) {
  EXPECT_EQ(out.sum16, folded(in.b));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out.sums4[i], folded(i % 2 == 0 ? in.b : in.c));
}

TEST_P(VectorWordsTest, ATransposeTurnsRowsIntoColumns) {
  for (uint32_t r = 0; r < out.width; ++r) {
    for (uint32_t c = 0; c < out.width; ++c) EXPECT_EQ(out.transposed[r * kMostLanes + c], 100 * c + r);
  }
}

TEST_P(VectorWordsTest, DotsAreExactIntegers) {
  for (uint32_t i = 0; i < out.dot_lanes; ++i) {
    int32_t dot = 0, mixed = 0, raised = 0, found = 0;
    for (uint32_t j = 0; j < 4; ++j) {
      const int32_t code = in.codes[4 * i + j];
      dot += (code - 8) * in.x[j];
      mixed += ((code >> 2 & 3) | (code & 0x30)) * in.x[j];
      raised += 256 * (code << 2 & 0x30) * in.x[j];
      found += (127 - 3 * (code & 15)) * in.x[j];
    }
    EXPECT_EQ(out.dots[i], dot);
    EXPECT_EQ(out.shifted[i], mixed);
    EXPECT_EQ(out.raised[i], raised);
    EXPECT_EQ(out.found[i], found);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, VectorWordsTest, testing::ValuesIn(all_words()),
                         [](const auto& set) { return set.param.name; });

}  // namespace
}  // namespace tenon::test
