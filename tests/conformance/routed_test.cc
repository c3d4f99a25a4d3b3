// Routed products, y[r] = epilogue(x[r] W_{expert[r]}^T), of the schemes that have them are compared with a dense
// reference in float64, on every device that is here. That any scheme's are right at all is a check of the suite
// (conformance/).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>

#include "quantization_schemes.h"
#include "tenon/core/error.h"

namespace tenon::test {
namespace {

enum Pattern { kRandom, kDistinct, kInPairs, kOneForAll, kAllSkipped, kPatterns };
std::vector<int32_t> routing(Pattern pattern, uint32_t rows, uint32_t experts, uint32_t seed = 9) {
  std::mt19937 random(seed);
  const auto n = static_cast<int32_t>(experts);
  std::vector<int32_t> expert;
  for (int32_t r = 0; r < static_cast<int32_t>(rows); ++r) {
    switch (pattern) {
      case kRandom:
        expert.push_back(static_cast<int32_t>(random() % (experts + 1)) - 1);  // one in experts + 1 is skipped
        break;
      case kDistinct:
        expert.push_back((r * 3 + 1) % n);
        break;
      case kInPairs:
        expert.push_back(r / 2 % n);
        break;
      case kOneForAll:
        expert.push_back(n - 1);
        break;
      default:
        expert.push_back(-1 - r);
    }
  }
  return expert;
}
StepCase step_of(std::vector<int32_t> expert) {
  const auto rows = static_cast<uint32_t>(expert.size());
  return {.rows = rows, .live = rows, .expert = std::move(expert)};
}
SiteCase site_of(uint32_t experts, std::vector<int64_t> rows, int64_t k) {
  return {.source = std::vector<tenon_format>(rows.size(), TENON_F32), .rows = rows, .k = k, .experts = experts};
}

class Routed : public testing::TestWithParam<Scheme> {
 protected:
  void SetUp() override {
    if (device(GetParam().device) == nullptr) GTEST_SKIP() << "no device " << GetParam().device;
  }
  // This is a share of the sum of |w x|: x in int8 is off by at most 1 / 254 of the greatest of 32 neighbours, x in 16
  // bits by 1 / 65278.
  static double tolerance() { return GetParam().int8 ? 1.5e-2 : GetParam().device == "cpu" ? 5e-5 : 2e-5; }
  static void expect_close(const QuantizedSite& site, const StepCase& step, bool fused = false) {
    const std::vector<float> y = site.run(step, fused);
    const auto want = site.exact(step, fused);
    ASSERT_EQ(y.size(), want.y.size());
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(double{y[i]}, want.y[i], tolerance() * want.magnitude[i])
          << "row " << i / (y.size() / step.live) << " of " << step.rows;
    }
  }
};

TEST_P(Routed, EqualsADenseReference) {
  for (const SiteCase& c : {site_of(4, {24}, 64), site_of(3, {17}, 40), site_of(8, {40, 24}, 300)}) {
    const QuantizedSite site(GetParam(), c);
    for (const uint32_t rows : {1U, 2U, 3U, 7U, 16U, 17U, 40U}) {
      for (int p = 0; p < kPatterns; ++p) {
        SCOPED_TRACE(testing::Message() << "k " << c.k << ", rows " << rows << ", pattern " << p);
        StepCase step = step_of(routing(static_cast<Pattern>(p), rows, c.experts));
        step.pitch = p == kRandom ? 3 : 0;
        expect_close(site, step);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Routed, LongRowsToo) {
  const QuantizedSite site(GetParam(), site_of(3, {19}, 28672));
  for (const uint32_t rows : {1U, 3U, 20U}) expect_close(site, step_of(routing(kRandom, rows, 3, 2)));
}

TEST_P(Routed, WhatIsFusedIsRight) {
  const std::vector<tenon_id> epilogues[] = {
      {}, {TENON_F_ADD}, {TENON_F_BIAS}, {TENON_F_SILU_MUL}, {TENON_F_BIAS, TENON_F_SILU_MUL}};
  for (const auto& epilogue : epilogues) {
    for (const bool norm : {false, true}) {
      for (const uint32_t rows : {1U, 5U, 16U, 37U}) {
        SCOPED_TRACE(testing::Message() << "rows " << rows << ", ops " << epilogue.size() << ", norm " << norm);
        StepCase step = step_of(routing(kRandom, rows, 6, 5));
        step.norm = norm;
        step.epilogue = epilogue;
        const QuantizedSite site(GetParam(), site_of(6, {36, 36}, 96), 3, step);
        expect_close(site, step, true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Routed, RowsPastTheLiveOnesAreLeftAlone) {
  const QuantizedSite site(GetParam(), site_of(4, {24}, 64));
  for (const uint32_t live : {1U, 3U, 17U}) {
    StepCase step = step_of(routing(kRandom, live + 4, 4, 11));
    std::fill(step.expert.begin() + live, step.expert.end(), 1 << 30);  // nobody looks at them
    step.live = live;
    expect_close(site, step);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Routed, ARowDoesNotDependOnTheOthers) {
  for (const SiteCase& c : {site_of(4, {48}, 1000), site_of(4, {20}, 28672)}) {
    const QuantizedSite site(GetParam(), c);
    const std::vector<int32_t> expert = routing(kRandom, 40, 4, 3);
    const auto first = [&](uint32_t rows) {
      StepCase step = step_of(expert);
      step.live = rows;
      return site.run(step, false);
    };
    const std::vector<float> all = first(40);
    for (const uint32_t rows : {1U, 2U, 5U, 16U, 17U}) {
      StepCase step = step_of({expert.begin(), expert.begin() + rows});
      const std::vector<float> some = site.run(step, false, rows);
      // x is the same for the first rows of a step of any size.
      ASSERT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0) << "k " << c.k << ", " << rows;
      ASSERT_EQ(first(rows), some);
    }
  }
}

TEST_P(Routed, CostsTheBytesOfTheChosenExperts) {
  constexpr uint32_t kExperts = 16;
  const QuantizedSite site(GetParam(), site_of(kExperts, {256}, 512));
  double all = 0;
  for (uint32_t i = 0; i < site.footprint().n_stores; ++i) all += static_cast<double>(site.footprint().store_bytes[i]);
  const double one = all / kExperts;
  const tenon_cost few = site.cost(step_of(routing(kDistinct, 2, kExperts)));
  EXPECT_EQ(few.read[0], 0);
  EXPECT_NEAR(few.read[1], one, 0.1 * one);
  EXPECT_EQ(few.flops[1], 2.0 * 256 * 512);
  const tenon_cost many = site.cost(step_of(routing(kRandom, 40, kExperts)));
  EXPECT_NEAR(many.read[0] + 40 * many.read[1], all, 0.5 * all);
}

// Blocks of GGUF keep their values: what the products are held to is the file itself.
class RoutedBlocks : public Routed {};

TEST_P(RoutedBlocks, EqualADenseReference) {
  constexpr tenon_format kBlocks[] = {TENON_Q4_0,  TENON_Q4_1,  TENON_Q5_0,  TENON_Q5_1, TENON_Q8_0,   TENON_Q2_K,
                                      TENON_Q3_K,  TENON_Q4_K,  TENON_Q5_K,  TENON_Q6_K, TENON_IQ4_NL, TENON_IQ4_XS,
                                      TENON_TQ1_0, TENON_TQ2_0, TENON_MXFP4, TENON_BF16, TENON_F16};
  constexpr tenon_format kInIntegers[] = {TENON_Q4_0, TENON_Q4_1, TENON_Q5_0, TENON_Q8_0, TENON_Q4_K, TENON_Q6_K};
  const std::span<const tenon_format> formats =
      GetParam().int8 ? std::span<const tenon_format>(kInIntegers) : std::span<const tenon_format>(kBlocks);
  for (size_t f = 0; f < formats.size(); ++f) {
    // Gate and up are in one format, and in two.
    for (const tenon_format second : {formats[f], formats[(f + 1) % formats.size()]}) {
      SiteCase c = site_of(5, {32, 32}, 512);
      c.source = {formats[f], second};
      const StepCase around{.epilogue = {TENON_F_SILU_MUL}};
      const QuantizedSite plain(GetParam(), c), fused(GetParam(), c, 3, around);
      for (const uint32_t rows : {1U, 5U, 16U, 40U}) {
        SCOPED_TRACE(testing::Message() << tenon_format_name(formats[f]) << " and " << tenon_format_name(second) << ", "
                                        << rows << " rows");
        StepCase step = step_of(routing(kRandom, rows, c.experts, rows));
        expect_close(plain, step);
        step.epilogue = around.epilogue;
        expect_close(fused, step, true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

std::vector<Scheme> block_schemes() {
  return {{.name = "gguf", .label = "cpu_scalar"},
          {.name = "gguf", .label = "cpu_avx2", .isa = TENON_ISA_AVX2},
          {.name = "gguf", .label = "cpu_best", .isa = ~uint64_t{0}},
          {.name = "gguf", .label = "cpu_avx2_int8", .int8 = true, .isa = TENON_ISA_AVX2},
          {.name = "gguf", .label = "cpu_best_int8", .int8 = true, .isa = ~uint64_t{0}},
          {.name = "gguf", .label = "cuda", .device = "cuda"}};
}
INSTANTIATE_TEST_SUITE_P(Schemes, RoutedBlocks, testing::ValuesIn(block_schemes()),
                         [](const auto& p) { return p.param.label; });

std::vector<Scheme> schemes() {
  std::vector<Scheme> all;
  const std::pair<std::string, uint64_t> sets[] = {{"scalar", 0}, {"avx2", TENON_ISA_AVX2}, {"best", ~uint64_t{0}}};
  for (const auto& [label, isa] : sets) {
    for (const char* dtype : {"fp32", "bf16"}) {
      all.push_back({.name = "none", .label = "cpu_" + label + "_none_" + dtype, .dtype = dtype, .isa = isa});
    }
    all.push_back({.name = "int8wo", .label = "cpu_" + label + "_int8wo", .isa = isa});
    all.push_back({.name = "int4wo", .label = "cpu_" + label + "_int4wo", .group = 64, .isa = isa});
    all.push_back({.name = "gguf", .label = "cpu_" + label + "_gguf", .isa = isa});
  }
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    all.push_back({.name = "none", .label = std::string("cuda_none_") + dtype, .dtype = dtype, .device = "cuda"});
  }
  all.push_back({.name = "int8wo", .label = "cuda_int8wo", .device = "cuda"});
  all.push_back({.name = "gguf", .label = "cuda_gguf", .device = "cuda"});
  for (const int64_t group : {32, 64, 128, 256}) {
    all.push_back(
        {.name = "int4wo", .label = "cuda_int4wo_" + std::to_string(group), .group = group, .device = "cuda"});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schemes, Routed, testing::ValuesIn(schemes()), [](const auto& p) { return p.param.label; });

std::string error_of(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(RoutedSites, AnExpertThatDoesNotExistIsAnErrorOnTheCpu) {
  const QuantizedSite site({.name = "none", .label = "", .dtype = "fp32"}, site_of(4, {24}, 64));
  EXPECT_THAT(error_of([&] { site.run(step_of({0, 4, 1}), false); }), testing::HasSubstr("row 1 wants expert 4 of 4"));
}

TEST(RoutedSites, ASchemeThatHasNoneRefusesWithTheReason) {
  const Scheme scheme{.name = "uintx", .label = "", .device = "cuda"};
  if (device(scheme.device) == nullptr) GTEST_SKIP() << "no device " << scheme.device << "; all have them on the CPU";
  EXPECT_THAT(error_of([&] { QuantizedSite(scheme, site_of(4, {24}, 64)); }),
              testing::HasSubstr("expert matrices are not supported"));
}

}  // namespace
}  // namespace tenon::test
