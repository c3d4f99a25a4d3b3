// The weight schemes' products for many rows, and for sequences of a row each, on a GPU, through their libraries: against
// float64, fused and separate.
#include "scheme_site.h"

namespace tenon::test {
namespace {

class ManyRows : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
  }
};

// Products of many rows round x to halves.
double many_rows_tolerance() {
  const bool bf16 = ManyRows::GetParam().text == std::string("bf16") || ManyRows::GetParam().types[0] == TENON_BF16;
  return bf16 ? 4e-3 : 1e-3;
}

TEST_P(ManyRows, EqualFloat64) {
  const Shape shapes[] = {{{17}, 40},    {{40, 24, 24}, 300}, {{35, 3}, 576}, {{16, 7, 9}, 11008},
                          {{1300}, 513}, {{3000}, 64},        {{17000}, 200}};
  for (const Shape& shape : shapes) {
    Site site(GetParam(), shape);
    for (const int64_t rows : {9, 17, 40, 70, 110, 150, 300}) {
      SCOPED_TRACE(testing::Message() << "k " << shape.k << ", rows " << rows);
      expect_close(site, site.run(rows, rows % 2), rows, many_rows_tolerance());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ManyRows, WhatIsFusedIsRight) {
  const std::vector<tenon_id> epilogues[] = {{TENON_F_BIAS, TENON_F_ADD}, {TENON_F_BIAS, TENON_F_SILU_MUL}};
  for (const auto& epilogue : epilogues) {
    for (const Shape& shape : {Shape{{70, 70}, 264}, Shape{{900, 900}, 640}}) {
      Site site(GetParam(), shape, {.norm = true, .epilogue = epilogue});
      for (const int64_t rows : {12, 20, 48, 64, 90, 190, 300}) {
        SCOPED_TRACE(testing::Message() << "k " << shape.k << ", rows " << rows << ", ops " << epilogue.size());
        expect_close(site, site.run(rows, 1), rows, 2 * many_rows_tolerance());
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(ManyRows, OfSequencesOfARowEachEqualFloat64) {
  const Shape shapes[] = {{{17}, 40}, {{40, 24, 24}, 300}, {{16, 7, 9}, 11008}, {{4300}, 513}, {{19}, 28672}};
  for (const Shape& shape : shapes) {
    Site site(GetParam(), shape);
    for (const int64_t rows : {5, 8}) {
      SCOPED_TRACE(testing::Message() << "k " << shape.k << ", rows " << rows);
      expect_close(site, site.run_sequences(rows, rows, rows % 2), rows, many_rows_tolerance());
      if (HasFatalFailure()) return;
    }
  }
  Site fused(GetParam(), {{900, 900}, 640}, {.norm = true, .epilogue = {TENON_F_BIAS, TENON_F_SILU_MUL}});
  expect_close(fused, fused.run_sequences(7, 7), 7, 2 * many_rows_tolerance());
}

// Up to four sequences a row has the bits that it has alone; in a program for more, those that it has among others there.
TEST_P(ManyRows, OfSequencesOfARowEachDoNotDependOnTheOthers) {
  Site site(GetParam(), {{2200}, 1000}, {.norm = true});
  const std::vector<float> drafts = site.run(8), all = site.run_sequences(8, 8);
  for (const int64_t rows : {1, 2, 4}) {
    const std::vector<float> some = site.run_sequences(rows, rows);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), drafts.begin())) << rows << " rows";
  }
  for (const int64_t live : {1, 3, 7}) {
    const std::vector<float> some = site.run_sequences(8, live);
    EXPECT_TRUE(std::equal(some.begin(), some.begin() + live * site.width(), all.begin())) << live << " of 8 rows";
  }
}

TEST_P(ManyRows, PastTheLiveOnesAreLeftAlone) {
  Site site(GetParam(), {{50}, 96});
  for (const uint32_t live : {0U, 1U, 33U}) {
    CudaRecorder host(CudaRecorder::bounds(40));
    host.set_live(live);
    const int64_t k = site.k();
    const tenon_tid y =
        site.record(host, host.input(TENON_F32, {40, k}, random_values(static_cast<size_t>(40 * k), 9)), 40);
    ASSERT_EQ(host.run(CudaRecorder::Mode::kOverlap), "");
    const std::vector<float> values = host.f32(y);
    for (size_t i = 0; i < live * 50; ++i) ASSERT_FALSE(std::isnan(values[i])) << i;
  }
}

TEST_P(ManyRows, AreRightWhereFewOfThemAreLive) {
  constexpr uint32_t kRows = 1000;
  Site site(GetParam(), {{2100, 30}, 576});
  const int64_t k = site.k();
  const std::vector<float> x = random_values(static_cast<size_t>(kRows * k), 11);
  std::vector<float> all;
  float largest = 0;
  for (const uint32_t live : {kRows, 600U, 256U, 5U}) {
    CudaRecorder host(CudaRecorder::bounds(kRows));
    host.set_live(live);
    const tenon_tid y = site.record(host, host.input(TENON_F32, {kRows, k}, x), kRows);
    ASSERT_EQ(host.run(CudaRecorder::Mode::kOverlap), "");
    const std::vector<float> got = host.f32(y);
    if (all.empty()) {
      all = got;
      for (const float v : all) largest = std::max(largest, std::abs(v));
    }
    for (size_t i = 0; i < live * size_t{2130}; ++i) {
      ASSERT_NEAR(got[i], all[i], 1e-5F * largest) << live << " live, element " << i;
    }
  }
}

TEST_P(ManyRows, OfAChainAreEqualInEveryMode) {
  constexpr int64_t kWidth = 2048;
  Site site(GetParam(), {{kWidth}, kWidth}, {.norm = true, .epilogue = {TENON_F_ADD}});
  for (const int64_t rows : {16, 32, 64, 96, 192, 256, 768}) {
    std::vector<float> want;
    for (const auto mode : {CudaRecorder::Mode::kList, CudaRecorder::Mode::kGraph, CudaRecorder::Mode::kOverlap}) {
      CudaRecorder host(CudaRecorder::bounds(static_cast<uint32_t>(rows)));
      tenon_tid y = host.input(TENON_F32, {rows, kWidth}, random_values(static_cast<size_t>(rows * kWidth), 5));
      for (int i = 0; i < 4; ++i) y = site.record(host, y, rows);
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(host.run(mode), "");
        const std::vector<float> got = host.f32(y);
        if (want.empty()) want = got;
        ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin())) << "rows " << rows << ", run " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, ManyRows, testing::ValuesIn(kSettings), [](const auto& p) { return label(p.param); });

}  // namespace
}  // namespace tenon::test
