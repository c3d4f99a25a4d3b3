// Schemes of packed rows have x in 16 bits where the machine has dot products of bytes. They are near the exact
// product, equal to the bit in every such instruction set, a row alone and among others, and have what the file has in
// every row that is looked up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "quantization_schemes.h"
#include "support/byte_dots.h"

namespace tenon::test {
namespace {

// fp6 has products of x in 16 bits in AVX-512 alone.
std::vector<ByteDotSet> sets_of(const Scheme& scheme) {
  std::vector<ByteDotSet> sets = byte_dot_sets();
  if (scheme.name == "fp6") std::erase_if(sets, [](const ByteDotSet& s) { return (s.isa & TENON_ISA_AVX512) == 0; });
  return sets;
}

std::vector<Scheme> schemes() {
  std::vector<Scheme> all{{.name = "int8wo", .label = "int8wo"}};
  for (const int64_t group : {32, 64, 128, 256}) {
    all.push_back({.name = "int4wo", .label = "int4wo_" + std::to_string(group), .group = group});
  }
  for (Scheme& s : coded_schemes()) {
    if (s.name == "uintx" || s.name == "nf4" || s.name == "fp4" || s.name == "fp6") all.push_back(std::move(s));
  }
  return all;
}
Scheme with(Scheme scheme, uint64_t isa) {
  scheme.isa = isa;
  return scheme;
}

// These have widths that fill no block and no group, and rows at every edge of the groups of sixteen.
std::vector<SiteCase> sites() {
  std::vector<SiteCase> all;
  for (const int64_t k : {1, 15, 33, 100, 257, 512}) all.push_back({.source = {TENON_F32}, .rows = {19}, .k = k});
  all.push_back({.source = {TENON_F16, TENON_BF16, TENON_F32}, .rows = {9, 16, 1}, .k = 77});
  all.push_back({.source = {TENON_Q4_K, TENON_Q6_K, TENON_F16}, .rows = {70, 17, 5}, .k = 256});
  return all;
}
std::vector<StepCase> steps() {
  return {{},
          {.rows = 9, .live = 7, .pitch = 3, .own_live = true},
          {.rows = 3, .live = 2, .norm = true},
          {.rows = 50, .live = 49}};
}

// A number of x is off by half of a 32639th of the largest one among 32 neighbours, a value of nf4 by as much of the
// largest one that it may have. Errors have different signs: rows of fewer than 32 numbers are off by the most.
constexpr double kTolerance = 4e-5, kLeast = 2e-5;

class Int16Activations : public testing::TestWithParam<Scheme> {};

TEST_P(Int16Activations, StayNearTheExactProduct) {
  // Nearly all weights in 1 bit are 0, and a number of x that is small beside
  // its neighbours may meet the only other one.
  const double tolerance = GetParam().label == "uintx_1_64" ? 10 * kTolerance : kTolerance;
  for (const auto& [name, isa] : sets_of(GetParam())) {
    for (const SiteCase& c : sites()) {
      SCOPED_TRACE(std::string(name) + " k " + std::to_string(c.k));
      const QuantizedSite site(with(GetParam(), isa), c);
      for (const StepCase& step : steps()) {
        const std::vector<float> y = site.run(step, true);
        const QuantizedSite::Exact exact = site.exact(step, true);
        ASSERT_EQ(y.size(), exact.y.size());
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(double{y[i]}, exact.y[i], tolerance * exact.magnitude[i] + kLeast) << "value " << i;
        }
      }
    }
  }
}

TEST_P(Int16Activations, AreMoreExactThanInEightBitsByFar) {
  for (const auto& [name, isa] : sets_of(GetParam())) {
    const QuantizedSite site(with(GetParam(), isa), {.source = {TENON_F32}, .rows = {200}, .k = 1024});
    const StepCase step{.rows = 4, .live = 4};
    const std::vector<float> y = site.run(step, false);
    const QuantizedSite::Exact exact = site.exact(step, false);
    double square = 0;
    for (size_t i = 0; i < y.size(); ++i) square += std::pow((double{y[i]} - exact.y[i]) / exact.magnitude[i], 2);
    EXPECT_LT(std::sqrt(square / static_cast<double>(y.size())), 1e-5) << name;
  }
}

TEST_P(Int16Activations, SameBitsInEverySetAndAmongAnyRows) {
  const SiteCase c{.source = {TENON_Q6_K, TENON_F16}, .rows = {100, 3}, .k = 512};
  std::vector<float> first;
  for (const auto& [name, isa] : sets_of(GetParam())) {
    const QuantizedSite site(with(GetParam(), isa), c);
    const std::vector<float> all = site.run({.rows = 53, .live = 53}, false);
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << name;
    for (const uint32_t live : {1U, 2U, 3U, 5U, 6U, 48U, 49U}) {
      const std::vector<float> some = site.run({.rows = 53, .live = live}, false, live);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << name << ", " << live << " rows";
    }
    const std::vector<float> alone = site.run({.rows = 1, .live = 1}, false);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin())) << name;
  }
}

TEST_P(Int16Activations, LookUpTheWeightsThatPlainCodeHas) {
  for (const auto& [name, isa] : sets_of(GetParam())) {
    for (const SiteCase& c : sites()) {
      const QuantizedSite packed(with(GetParam(), isa), c), plain(with(GetParam(), 0), c);
      std::vector<int32_t> index;
      for (int32_t r = static_cast<int32_t>(c.rows[0]); r-- > 0;) index.push_back(r);
      EXPECT_EQ(packed.embed(index), plain.embed(index)) << name << " k " << c.k;
    }
  }
}

TEST_P(Int16Activations, AHalfOfAMatrixThatIsNoWholeGroupStaysInF32) {
  for (const auto& [name, isa] : sets_of(GetParam())) {
    const StepCase step{.rows = 3, .live = 3, .epilogue = {TENON_F_SILU_MUL}};
    for (const int64_t rows : {46, 64}) {
      const SiteCase c{.source = {TENON_F16}, .rows = {rows}, .k = 72};
      const QuantizedSite site(with(GetParam(), isa), c, 3, step);
      const std::vector<float> y = site.run(step, true);
      const QuantizedSite::Exact exact = site.exact(step, true);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(double{y[i]}, exact.y[i], 2 * kTolerance * exact.magnitude[i] + 1e-30) << name << " value " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, Int16Activations, testing::ValuesIn(schemes()),
                         [](const auto& param) { return param.param.label; });

}  // namespace
}  // namespace tenon::test
