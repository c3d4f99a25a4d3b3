// What any quantization scheme owes, however its weights look inside; `tenon plugin check` runs these on one library.
#include <gtest/gtest.h>

#include <cmath>

#include "quantization_host.h"
#include "support/weight_rows.h"

namespace tenon::test {
namespace {

// Of a scheme's sums against float64, relative; wide enough for activations in 8 bits.
constexpr double kTolerance = 4e-2;
// Of the weights held against the file's, relative: two bits a weight hold about 0.5, another matrix is off by 1.4.
constexpr double kHeld = 0.75;
constexpr int64_t kWidth = 256;  // whole blocks of every format

std::vector<Scheme> schemes() {
  std::vector<Scheme> all;
  for (const std::string& name : installed("quantization")) {
    all.push_back({.name = name, .label = name + "_scalar"});
    if (machine_isa() != 0) all.push_back({.name = name, .label = name, .isa = machine_isa()});
  }
  return all;
}

// Root mean square of the difference, relative to that of what is wanted.
class Difference {
 public:
  void add(double got, double wanted) { off_ += (got - wanted) * (got - wanted), size_ += wanted * wanted; }
  double relative() const { return std::sqrt(off_ / size_); }

 private:
  double off_ = 0, size_ = 0;
};
double difference(const std::vector<float>& got, const std::vector<double>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  Difference d;
  for (size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) d.add(double{got[i]}, wanted[i]);
  return d.relative();
}

class AnyQuantization : public testing::TestWithParam<Scheme> {
 protected:
  // Matrices in the first format that the scheme takes; none if it takes no format of a file.
  void SetUp() override {
    const std::unique_ptr<Component> component = GetParam().open();
    const tenon_bounds bounds = OpRunner::bounds({.rows = 1});
    for (const tenon_format format : kFileFormats) {
      site_ = {.source = {format, format}, .rows = {40, 19}, .k = kWidth};
      const LinearDescription d(site_);
      tenon_claim claim{};
      claim.h = {sizeof(claim), 1, 0};
      const auto& table = component->table<tenon_quantization>();
      if (table.claim(component->self(), &d.linear, &bounds, &claim, nullptr) == TENON_OK) return;
    }
    FAIL() << "refuses a site of two matrices in every format that a file may have";
  }

  SiteCase site_;
};

TEST_P(AnyQuantization, HoldsTheMatricesOfTheFile) {
  QuantizedSite site(GetParam(), site_);
  site.learn();
  Difference d;
  for (size_t m = 0; m < site_.rows.size(); ++m) {
    for (int64_t row = 0; row < site_.rows[m]; ++row) {
      for (int64_t i = 0; i < kWidth; ++i) d.add(site.weight(m, row, i), site.source(m, row, i));
    }
  }
  EXPECT_LE(d.relative(), kHeld) << "products with unit vectors show other matrices than the file's";
}

TEST_P(AnyQuantization, MultipliesByTheWeightsThatItHolds) {
  QuantizedSite site(GetParam(), site_);
  site.learn();
  for (const StepCase& step : {StepCase{}, StepCase{.rows = 9, .live = 7, .pitch = 3, .own_live = true}}) {
    EXPECT_LE(difference(site.run(step, false), site.exact(step, false).y), kTolerance) << step.rows << " rows";
  }
}

TEST_P(AnyQuantization, DoesWhatItClaims) {
  site_.rows = {24, 24};
  QuantizedSite site(GetParam(), site_);
  site.learn();
  const std::vector<std::vector<tenon_id>> epilogues{
      {}, {TENON_F_ADD}, {TENON_F_BIAS}, {TENON_F_BIAS, TENON_F_ADD}, {TENON_F_SILU_MUL}};
  for (const bool norm : {false, true}) {
    for (const std::vector<tenon_id>& epilogue : epilogues) {
      const StepCase step{.rows = 4, .live = 3, .norm = norm, .epilogue = epilogue};
      if (!site.claims(step)) continue;
      EXPECT_LE(difference(site.run(step, true), site.exact(step, true).y), kTolerance)
          << (norm ? "a norm, " : "") << epilogue.size() << " ops behind the product";
    }
  }
}

TEST_P(AnyQuantization, LooksUpTheRowsThatItMultipliesBy) {
  QuantizedSite site(GetParam(), site_);
  if (!site.has_rows()) GTEST_SKIP() << "it holds no embeddings";
  site.learn();
  const std::vector<int32_t> index{39, 0, 7, 7};
  std::vector<double> wanted;
  for (const int32_t row : index) {
    for (int64_t i = 0; i < kWidth; ++i) wanted.push_back(site.weight(0, row, i));
  }
  EXPECT_LE(difference(site.embed(index), wanted), kTolerance);
}

TEST_P(AnyQuantization, ARowHasTheSameBitsAloneAndAmongOthers) {
  const QuantizedSite site(GetParam(), site_);
  const uint32_t most = std::min(site.row_invariant_max(), 33U);
  if (most == 0) GTEST_SKIP() << "it promises nothing";
  const std::vector<float> all = site.run({.rows = most, .live = most}, false);
  for (uint32_t live = 1; live <= most; live += live < 9 ? 1 : 8) {
    const std::vector<float> y = site.run({.rows = most, .live = live}, false, live);
    ASSERT_EQ(y, std::vector<float>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(y.size()))) << live;
  }
}

TEST_P(AnyQuantization, LoadingDoesNotDependOnHowRowsArrive) {
  const QuantizedSite a(GetParam(), site_, 1), b(GetParam(), site_, 100);
  EXPECT_EQ(a.run({}, false), b.run({}, false));
}

INSTANTIATE_TEST_SUITE_P(All, AnyQuantization, testing::ValuesIn(schemes()),
                         [](const auto& param) { return param.param.label; });

}  // namespace
}  // namespace tenon::test
