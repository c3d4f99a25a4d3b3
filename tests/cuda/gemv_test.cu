// The weight schemes' products for few rows on a GPU, through their libraries, are held against float64; they are equal
// to the bit over row counts, fused and separate, but for a single row in a pipeline that has no step of several.
#include "scheme_site.h"

namespace tenon::test {
namespace {

constexpr double kTolerance = 2e-5;

// Says whether rows that are alone in their pipeline are digits: one is that shared memory has room for.
bool is_digits(const Shape& shape, int64_t rows) {
  return rows == 1 && shape.k <= 16384;
}

class Gemv : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(Gemv, EqualsFloat64) {
  // Each block multiplies several pairs of tiles if there are 20000 rows.
  const Shape shapes[] = {{{1}, 32},     {{17}, 40},     {{40, 24, 24}, 300}, {{5000}, 64},
                          {{33}, 100},   {{35, 3}, 576}, {{16, 7, 9}, 11008}, {{19}, 14336},
                          {{20}, 28672}, {{4300}, 513},  {{20000}, 64}};
  for (const Shape& shape : shapes) {
    Site site(GetParam(), shape);
    for (const int64_t rows : {1, 3, 8}) {
      SCOPED_TRACE(testing::Message() << "k " << shape.k << ", rows " << rows);
      expect_close(site, site.run(rows, rows % 2), rows, kTolerance, is_digits(shape, rows));
      if (HasFatalFailure()) return;
    }
    expect_close(site, site.run_among(1), 1, kTolerance);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Gemv, ARowDoesNotDependOnTheOthers) {
  for (const Shape& shape : {Shape{{2200}, 1000}, Shape{{48}, 14336}, Shape{{100, 28}, 28672}}) {
    Site site(GetParam(), shape, {.norm = true});
    const std::vector<float> all = site.run(Site::kAmong);
    for (const int64_t rows : {1, 2, 4, 5, 7}) {
      const std::vector<float> some = site.run_among(rows);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << "k " << shape.k << ", rows " << rows;
    }
    const std::vector<float> large = site.run_among(1, false);
    ASSERT_TRUE(std::equal(large.begin(), large.end(), all.begin())) << "k " << shape.k << ", a large block";
    ASSERT_EQ(site.run(1), site.run(1, 0, false)) << "k " << shape.k << ", a row alone";
  }
}

TEST_P(Gemv, ANumberThatIsNotFiniteMakesItsRowSo) {
  Site site(GetParam(), {{40}, 576});
  for (const float bad : {INFINITY, NAN}) {
    CudaRecorder host(CudaRecorder::bounds(1));
    std::vector<float> x = random_values(static_cast<size_t>(site.k()), 9);
    x[300] = bad;
    const tenon_tid y = site.record(host, host.input(TENON_F32, {1, site.k()}, x), 1);
    ASSERT_EQ(host.run(CudaRecorder::Mode::kOverlap), "");
    for (const float v : host.f32(y)) ASSERT_FALSE(std::isfinite(v)) << bad;
  }
}

TEST_P(Gemv, WhatIsFusedIsRight) {
  const std::vector<tenon_id> epilogues[] = {
      {TENON_F_ADD}, {TENON_F_BIAS}, {TENON_F_BIAS, TENON_F_ADD}, {TENON_F_SILU_MUL}, {TENON_F_BIAS, TENON_F_SILU_MUL}};
  for (const auto& epilogue : epilogues) {
    for (const Shape& shape : {Shape{{70, 70}, 72}, Shape{{46}, 264}, Shape{{2400, 2400}, 640}}) {
      for (const bool norm : {false, true}) {
        if (!norm && shape.k == 640) continue;
        Site site(GetParam(), shape, {norm, epilogue});
        for (const int64_t rows : {1, 5, 8}) {
          SCOPED_TRACE(testing::Message() << "k " << shape.k << ", rows " << rows << ", ops " << epilogue.size());
          expect_close(site, site.run(rows, 1), rows, 2 * kTolerance, is_digits(shape, rows));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Gemv, RowsPastTheLiveOnesAreLeftAlone) {
  Site site(GetParam(), {{50}, 96});
  for (const uint32_t live : {0U, 1U, 3U}) {
    CudaRecorder host(CudaRecorder::bounds(4));
    host.set_live(live);
    const int64_t k = site.k();
    const tenon_tid y =
        site.record(host, host.input(TENON_F32, {4, k}, random_values(static_cast<size_t>(4 * k), 9)), 4);
    ASSERT_EQ(host.run(CudaRecorder::Mode::kOverlap), "");
    const std::vector<float> values = host.f32(y);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(std::isnan(values[i]), i / 50 >= live) << i;
  }
}

TEST_P(Gemv, AChainThatOverlapsEqualsOneThatDoesNot) {
  constexpr int64_t kWidth = 4096;
  Site site(GetParam(), {{kWidth}, kWidth}, {.norm = true, .epilogue = {TENON_F_ADD}});
  struct Step {
    int64_t rows;
    uint32_t most_out_rows;
  };
  std::vector<float> among;  // the row of the step of one row in a pipeline that has one of four, too
  for (const Step& step : {Step{1, 1}, Step{1, 4}, Step{4, 4}}) {
    std::vector<float> want;
    for (const auto mode : {CudaRecorder::Mode::kList, CudaRecorder::Mode::kGraph, CudaRecorder::Mode::kOverlap}) {
      CudaRecorder host(CudaRecorder::bounds(static_cast<uint32_t>(step.rows)), step.most_out_rows);
      const std::vector<float> x = random_values(static_cast<size_t>(step.rows * kWidth), 5);
      tenon_tid y = host.input(TENON_F32, {step.rows, kWidth}, x);
      for (int i = 0; i < 5; ++i) y = site.record(host, y, step.rows);
      for (int i = 0; i < 10; ++i) {
        ASSERT_EQ(host.run(mode), "");
        const std::vector<float> got = host.f32(y);
        if (want.empty()) want = got;
        ASSERT_TRUE(got == want) << step.rows << " rows of " << step.most_out_rows << ", run " << i;
      }
    }
    if (step.rows == 1) {
      among = want;
    } else {
      ASSERT_TRUE(std::equal(among.begin(), among.end(), want.begin()));
    }
  }
}

TEST_P(Gemv, LooksUpRows) {
  for (const Around& around : {Around{}, Around{.norm = false, .epilogue = {TENON_F_SILU_MUL}}}) {
    Site site(GetParam(), {{30, 30}, 300}, around);
    const std::vector<int32_t> index{29, 0, 7, 8, 17, 0};
    const std::vector<float> y = site.lookup(index);
    for (size_t r = 0; r < index.size(); ++r) {
      const auto k = static_cast<size_t>(site.k());
      for (size_t i = 0; i < k; ++i) ASSERT_EQ(y[r * k + i], site.weights(index[r])[i]) << r << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, Gemv, testing::ValuesIn(kSettings), [](const auto& p) { return label(p.param); });

}  // namespace
}  // namespace tenon::test
