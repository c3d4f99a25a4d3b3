// quantization.gguf with activations in int8 is near the exact product, and as independent of rows and machine as f32.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "quantization_schemes.h"

namespace tenon::test {
namespace {

std::vector<Scheme> int8_schemes() {
  std::vector<Scheme> all{{.name = "gguf", .label = "scalar", .int8 = true}};
  uint64_t isa = 0;
  for (const auto& [name, bit] : {std::pair<const char*, uint64_t>{"avx2", TENON_ISA_AVX2},
                                  {"avxvnni", TENON_ISA_AVX_VNNI},
                                  {"avx512", TENON_ISA_AVX512},
                                  {"avx512vnni", TENON_ISA_AVX512_VNNI}}) {
    if ((machine_isa() & bit) == 0) continue;
    isa |= bit;
    all.push_back({.name = "gguf", .label = name, .int8 = true, .isa = isa});
  }
  return all;
}

std::vector<StepCase> steps() {
  return {{},
          {.rows = 60, .live = 53, .pitch = 1},
          {.rows = 3, .live = 2, .norm = true},
          {.rows = 5, .live = 5, .norm = true, .epilogue = {TENON_F_BIAS, TENON_F_SILU_MUL, TENON_F_ADD}}};
}

class Int8Activations : public testing::TestWithParam<tenon_format> {};

// An error is at most half a step of 1 / 127 of a block's largest value, and errors of different signs cancel.
TEST_P(Int8Activations, StayNearTheExactProduct) {
  for (const Scheme& scheme : int8_schemes()) {
    const QuantizedSite site(scheme, {.source = {GetParam(), TENON_Q8_0}, .rows = {70, 70}, .k = 768});
    for (const StepCase& step : steps()) {
      const std::vector<float> y = site.run(step, true);
      const QuantizedSite::Exact exact = site.exact(step, true);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(double{y[i]}, exact.y[i], 0.01 * exact.magnitude[i]) << scheme.label << " value " << i;
      }
    }
  }
}

TEST_P(Int8Activations, SameBitsOnEveryInstructionSetAndAmongAnyRows) {
  const SiteCase c{.source = {GetParam()}, .rows = {70}, .k = 512};
  const QuantizedSite reference(int8_schemes().front(), c);
  for (const Scheme& scheme : int8_schemes()) {
    const QuantizedSite site(scheme, c);
    for (const StepCase& step : {StepCase{}, StepCase{.rows = 9, .live = 9, .norm = true}}) {
      EXPECT_EQ(site.run(step, true), reference.run(step, true)) << scheme.label;
    }
    const std::vector<float> all = site.run({.rows = 9, .live = 9}, false);
    for (const uint32_t live : {1u, 3u, 4u, 5u}) {
      const std::vector<float> some = site.run({.rows = 9, .live = live}, false, live);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << scheme.label << " " << live << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Int8Activations,
                         testing::Values(TENON_Q4_0, TENON_Q4_1, TENON_Q5_0, TENON_Q8_0, TENON_Q4_K, TENON_Q6_K),
                         [](const auto& param) { return std::string(tenon_format_name(param.param)); });

TEST(Int8ActivationsClaim, NamesTheFormatThatItLacks) {
  for (const tenon_format f : {TENON_F16, TENON_Q5_1, TENON_Q2_K}) {
    try {
      const QuantizedSite site(int8_schemes().back(), {.source = {TENON_Q8_0, f}, .rows = {4, 4}, .k = 256});
      FAIL() << "claimed " << tenon_format_name(f);
    } catch (const std::runtime_error& e) {
      EXPECT_NE(std::string(e.what()).find(tenon_format_name(f)), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("\"auto\""), std::string::npos) << e.what();
    }
  }
}

// There are groups of sixteen rows at every edge, loaded a few rows at a time.
TEST(PackedRows, AreTheFilesWeights) {
  for (const tenon_format f : {TENON_Q4_0, TENON_Q4_1, TENON_Q5_0, TENON_Q8_0, TENON_Q4_K, TENON_Q6_K}) {
    for (const int64_t rows : {1, 15, 16, 17, 33}) {
      const QuantizedSite site(int8_schemes().back(), {.source = {f}, .rows = {rows}, .k = 512});
      std::vector<int32_t> index;
      for (int64_t r = 0; r < rows; ++r) index.push_back(static_cast<int32_t>(rows - 1 - r));
      const std::vector<float> got = site.embed(index);
      for (size_t i = 0; i < got.size(); ++i) {
        const auto row = static_cast<int64_t>(index[i / 512]), column = static_cast<int64_t>(i % 512);
        ASSERT_EQ(double{got[i]}, site.source(0, row, column)) << tenon_format_name(f) << ' ' << row << ' ' << column;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::test
