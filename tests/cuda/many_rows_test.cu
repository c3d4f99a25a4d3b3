// The weight schemes' products for many rows, and for sequences of a row each, on a GPU, through their libraries, are
// held against float64, fused and separate.
#include <algorithm>
#include <limits>

#include "scheme_site.h"
#include "tenon/core/linked_values.h"

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

// Up to four sequences a row has the bits that it has alone; in a program for
// more, those that it has among others there.
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

constexpr uint32_t kTiledLinks[] = {TENON_F16 | sdk::kTiled, TENON_F16 | sdk::kTiled | sdk::kStaggered,
                                    TENON_BF16 | sdk::kTiled};

// Between two products rows are halves in the order of the tensor cores: what the first leaves is its y rounded, as far
// as halves go, and the second makes of it what it makes of the same numbers in f32.
TEST_P(ManyRows, PassFromProductToProductTiled) {
  constexpr int64_t kInner = 2304;
  Site first(GetParam(), {{kInner, kInner}, 256}, {.norm = true, .epilogue = {TENON_F_SILU_MUL}});
  // Where there are 16 rows, clusters multiply the narrower one (cluster_gemm.cuh).
  Site wider(GetParam(), {{4300}, kInner}, {.epilogue = {TENON_F_ADD}}),
      narrower(GetParam(), {{4090}, kInner}, {.epilogue = {TENON_F_BIAS, TENON_F_ADD}});
  size_t linked = 0;
  for (const uint32_t rows : {16U, 32U, 48U, 64U, 96U, 128U, 192U, 256U, 512U, 1024U}) {
    Site& second = rows == 16 ? narrower : wider;
    for (const uint32_t link : kTiledLinks) {
      if (!second.takes(rows, link, TENON_F32) || !first.takes(rows, TENON_F32, link)) continue;
      SCOPED_TRACE(testing::Message() << rows << " rows, format " << link);
      ++linked;
      const std::vector<float> x = random_values(static_cast<size_t>(rows * first.k()), rows);
      const auto run_first = [&](const tenon_tensor& y, const auto& read) {
        CudaRecorder host(CudaRecorder::bounds(rows));
        const tenon_tid to = first.record_to(host, host.input(TENON_F32, {rows, first.k()}, x), rows, y);
        EXPECT_EQ(host.run(CudaRecorder::Mode::kGraph), "");
        return read(host, to);
      };
      const tenon_tensor tiled = sdk::linked_rows(link, rows, kInner);
      const auto left = run_first(tiled, [](auto& host, tenon_tid y) { return host.template download<uint16_t>(y); });
      const auto plain =
          run_first(sdk::tensor(TENON_F32, {rows, kInner}), [](auto& host, tenon_tid y) { return host.f32(y); });
      const LinkedValues values(tiled, reinterpret_cast<const std::byte*>(left.data()));
      const bool is_f16 = tiled.format == TENON_F16;
      const float unit = is_f16 ? 0x1p-11F : 0x1p-8F;
      const auto most_of = [&](int64_t column) {
        if (!is_f16) return std::numeric_limits<float>::max();
        return sdk::is_staggered(tiled) && column % 4 >= 2 ? 16 * 65504.0F : 65504.0F;
      };
      std::vector<float> between;
      for (int64_t i = 0; i < rows * kInner; ++i) {
        between.push_back(values.at(i / kInner, i % kInner));
        const float most = most_of(i % kInner), want = std::clamp(plain[static_cast<size_t>(i)], -most, most);
        ASSERT_NEAR(between.back(), want, unit * std::abs(want) + 0x1p-20F)
            << "row " << i / kInner << ", column " << i % kInner;
      }
      const auto run_second = [&](const tenon_tensor& t, const void* data) {
        CudaRecorder host(CudaRecorder::bounds(rows));
        const tenon_tid y = second.record(host, host.input(t, data), rows);
        EXPECT_EQ(host.run(CudaRecorder::Mode::kGraph), "");
        return host.f32(y);
      };
      const std::vector<float> got = run_second(tiled, left.data()),
                               want = run_second(sdk::tensor(TENON_F32, {rows, kInner}), between.data());
      float largest = 0;
      for (const float v : want) largest = std::max(largest, std::abs(v));
      // matvec.cuh multiplies 16 rows of the narrower one that are no halves.
      const float rounding = rows == 16 ? static_cast<float>(many_rows_tolerance()) : 1e-6F;
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], rounding * largest) << "element " << i;
    }
  }
  if (linked == 0) GTEST_SKIP() << "the scheme, or the GPU, has no products of tiled rows";
}

// Beside its y a product leaves rows for the norm of the next one, which makes of them what it makes of y.
TEST_P(ManyRows, PassThroughANormTiled) {
  size_t linked = 0;
  for (const int64_t width : {2560, 4096, 4608}) {  // clusters multiply 16 rows of the second one (cluster_gemm.cuh)
    Site first(GetParam(), {{width}, 768}, {.epilogue = {TENON_F_ADD}});
    Site second(GetParam(), {{4300, 40}, width}, {.norm = true});
    const std::vector<float> norm_weights = second.norm();
    for (const uint32_t rows : {16U, 32U, 48U, 64U, 96U, 128U, 192U}) {
      for (const uint32_t tiled : kTiledLinks) {
        const uint32_t link = tiled | sdk::kNormed;
        if (!second.takes(rows, link, TENON_F32) || !first.takes(rows, TENON_F32, link)) continue;
        SCOPED_TRACE(testing::Message() << rows << " rows of " << width << ", format " << link);
        ++linked;
        // Some rows are changed little by the product, some grow a thousandfold, and one is no numbers: it stays so, alone.
        std::vector<float> x = random_values(static_cast<size_t>(rows * first.k()), rows);
        for (size_t i = 0; i < x.size(); ++i) x[i] *= std::exp2(static_cast<float>(i / first.k() % 5) * 3 - 8);
        constexpr size_t kNanRow = 2;
        std::fill_n(x.begin() + kNanRow * first.k(), first.k(), std::numeric_limits<float>::quiet_NaN());
        const uint32_t live = rows - 5;
        const auto run = [&](bool through_link, CudaRecorder::Mode mode) {
          CudaRecorder host(CudaRecorder::bounds(rows));
          host.set_live(live);
          auto norm = sdk::abi_struct<tenon_fop>();
          norm.id = TENON_F_RMSNORM;
          norm.t[0] = host.input(TENON_F32, {width}, norm_weights);
          const tenon_tid normed = through_link ? host.output(sdk::linked_rows(link, rows, width)) : 0;
          const tenon_tid between =
              first.record_to(host, host.input(TENON_F32, {rows, first.k()}, x), rows,
                              sdk::tensor(TENON_F32, {rows, width}), normed, through_link ? &norm : nullptr);
          const tenon_tid y = second.record(host, through_link ? normed : between, rows);
          EXPECT_EQ(host.run(mode), "");
          return std::pair(host.f32(between), host.f32(y));
        };
        const auto [plain, want] = run(false, CudaRecorder::Mode::kGraph);
        for (const auto mode : {CudaRecorder::Mode::kList, CudaRecorder::Mode::kGraph}) {
          const auto [beside, got] = run(true, mode);
          const auto columns = static_cast<size_t>(second.width());
          float most = 0;
          const auto is_number = [](size_t row, float v) {
            EXPECT_EQ(std::isnan(v), row == kNanRow);
            return row != kNanRow;
          };
          for (size_t i = 0; i < live * columns; ++i) {
            if (is_number(i / columns, want[i])) most = std::max(most, std::abs(want[i]));
          }
          // Plain products of 16 rows may be those of matvec.cuh, which rounds x otherwise.
          const float rounding = rows == 16 ? static_cast<float>(many_rows_tolerance()) : 1e-5F;
          float largest = 0;
          for (size_t i = 0; i < live * static_cast<size_t>(width); ++i) {
            if (is_number(i / width, plain[i])) largest = std::max(largest, std::abs(plain[i]));
          }
          for (size_t i = 0; i < live * static_cast<size_t>(width); ++i) {
            if (!is_number(i / width, beside[i])) continue;
            ASSERT_NEAR(beside[i], plain[i], rounding * (1 + (rows == 16 ? largest : std::abs(plain[i]))))
                << "element " << i;
          }
          // A row that the product and the norm's weights make more than two million times as large as its addend may
          // reach f16's largest number. Few grow so.
          std::vector<bool> fits(live, true);
          for (size_t i = 0; i < live * static_cast<size_t>(width); ++i) {
            const float weighted = std::abs(plain[i] * norm_weights[i % width]);
            if (weighted > 0x1p21F * Site::size_of_addend(i / width)) fits[i / width] = false;
          }
          EXPECT_GT(static_cast<size_t>(std::count(fits.begin(), fits.end(), true)), live / 2);
          for (size_t i = 0; i < live * columns; ++i) {
            if (!is_number(i / columns, got[i]) || !fits[i / columns]) continue;
            ASSERT_NEAR(got[i], want[i], static_cast<float>(many_rows_tolerance()) * most)
                << "row " << i / columns << ", column " << i % columns;
          }
        }
      }
    }
  }
  Site plain(GetParam(), {{4300, 40}, 2560});
  const bool tiles = std::ranges::any_of(kTiledLinks, [&](uint32_t link) { return plain.takes(64, link, TENON_F32); });
  if (!tiles) GTEST_SKIP() << "the scheme, or the GPU, has no products of tiled rows";
  EXPECT_GT(linked, 0U);
}

INSTANTIATE_TEST_SUITE_P(Schemes, ManyRows, testing::ValuesIn(kSettings), [](const auto& p) { return label(p.param); });

}  // namespace
}  // namespace tenon::test
