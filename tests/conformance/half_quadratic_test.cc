// int4wo's zero points by half-quadratic quantization stand beside the method in the form in which it is published: on
// the scale 1 / s, with a zero point among the codes.
#include "../../plugins/quantization/rows/half_quadratic.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tenon::rows {
namespace {

constexpr uint32_t kGroup = 64;

// Returns mostly small weights, and `outliers` of a hundred that are ten times as large.
std::vector<float> weights(uint32_t seed, int outliers) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.01F, 0.02F);
  std::vector<float> w(kGroup);
  for (float& x : w) x = normal(random) * (static_cast<int>(random() % 100) < outliers ? 10.0F : 1.0F);
  return w;
}

double mean_error(const Int4Group& group, const std::vector<float>& w) {
  std::vector<uint8_t> stored(int4_row_bytes(kGroup, kGroup));
  put_int4_group(group, w.data(), kGroup, kGroup, stored.data());
  double sum = 0;
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint8_t both = stored[4 + i / 32 * 16 + i % 16];
    const int q = i % 32 < 16 ? both & 15 : both >> 4;
    sum += std::abs(double{w[i]} - ((q - 8) * double{group.step()} + sdk::bf16_to_float(group.zero)));
  }
  return sum / kGroup;
}

// This is the published loop, in double.
uint16_t published(const std::vector<float>& w) {
  const Int4Group range = int4_group_of_range(w.data(), kGroup);
  const double s = range.step();
  double zero = 8 - sdk::bf16_to_float(range.zero) / s, beta = 10, best = mean_error(range, w);
  Int4Group kept = range;
  for (int turn = 0; turn < 20; ++turn, beta *= 1.01) {
    double next = 0;
    for (const float x : w) {
      const double q = std::min(15.0, std::max(0.0, std::nearbyint(x / s + zero))), e = x - (q - zero) * s;
      const double large = std::max(std::abs(e) - std::pow(std::abs(e), 0.7 - 1) / beta, 0.0) * (e < 0 ? -1 : 1);
      next += (q - (x - large) / s) / kGroup;
    }
    Int4Group tried = range;
    tried.zero = sdk::float_to_bf16(static_cast<float>((8 - next) * s));
    if (mean_error(tried, w) >= best) break;
    best = mean_error(tried, w);
    kept = tried;
    zero = 8 - sdk::bf16_to_float(tried.zero) / s;
  }
  return kept.zero;
}

TEST(HalfQuadratic, IsThePublishedLoop) {
  int moved = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> w = weights(seed, static_cast<int>(seed % 4) * 2);
    const Int4Group range = int4_group_of_range(w.data(), kGroup), fitted = int4_group_by_hqq(w.data(), kGroup);
    EXPECT_EQ(fitted.scale, range.scale);
    EXPECT_EQ(fitted.zero, published(w)) << seed;
    moved += fitted.zero != range.zero ? 1 : 0;
  }
  EXPECT_GT(moved, 50);
}

TEST(HalfQuadratic, IsNeverWorseAndMostlyBetter) {
  double before = 0, after = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const std::vector<float> w = weights(seed, 3);
    const double plain = mean_error(int4_group_of_range(w.data(), kGroup), w);
    const double fitted = mean_error(int4_group_by_hqq(w.data(), kGroup), w);
    EXPECT_LE(fitted, plain) << seed;
    before += plain;
    after += fitted;
  }
  EXPECT_LT(after, 0.99 * before);
}

TEST(HalfQuadratic, LeavesGroupsThatNothingIsWrongWith) {
  const std::vector<float> same(kGroup, 0.25F);
  EXPECT_EQ(int4_group_by_hqq(same.data(), kGroup).zero, int4_group_of_range(same.data(), kGroup).zero);
  const float lone = -3.5F;
  EXPECT_EQ(int4_group_by_hqq(&lone, 1).zero, int4_group_of_range(&lone, 1).zero);
  const std::vector<float> huge = {3e38F, -3e38F, 1};
  EXPECT_FALSE(int4_group_by_hqq(huge.data(), 3).finite());
}

}  // namespace
}  // namespace tenon::rows
