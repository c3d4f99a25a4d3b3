// quantization.fp8, where x is rounded to e4m3 by the file's scale, by a scale a row or by one a group, is held against the definition
// in float64, on every device that is here. That matrices side by side keep their own scales, published_test.cc shows,
// whose forms have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "conformance/published_forms.h"
#include "support/coded_rows.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;
using conformance::published_forms;
using conformance::published_site;
using conformance::QuantizedSite;
using conformance::SiteCase;
using conformance::StepCase;
using ::testing::HasSubstr;

SiteCase site_of(const std::string& label, std::vector<int64_t> rows, int64_t k) {
  const auto& forms = published_forms();
  const auto form = std::find_if(forms.begin(), forms.end(), [&](const auto& f) { return f.label == label; });
  SiteCase c = published_site(*form, std::move(rows), k);
  c.lookup = false;
  return c;
}

class Fp8Activations : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device(GetParam()) == nullptr) GTEST_SKIP() << "no device " << GetParam();
  }
  static std::unique_ptr<conformance::Component> open(const std::string& activations) {
    const std::vector<Setting> set = {{"activations", activations}};
    if (std::string(GetParam()) == "cpu") return std::make_unique<Component>("quantization", "fp8", set);
    return std::make_unique<conformance::Component>(plugins().load("quantization", "fp8", GetParam()),
                                                    *device(GetParam()), set);
  }
  static bool is_cuda() { return GetParam() == std::string("cuda"); }
  // Says whether products of more than 1024 rows are products of codes, as on Hopper.
  static bool multiplies_codes() { return is_cuda() && device("cuda")->table().arch == 90; }
  // A GPU multiplies many rows in halves, or in e4m3 with sums that its tensor
  // cores add up in some 14 bits for a while.
  static double many_rows_tolerance() { return is_cuda() ? 2e-3 : 2e-5; }
  static std::string refusal(const std::string& activations, const SiteCase& site) {
    try {
      const QuantizedSite made(open(activations), site);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }
};

// Returns numbers as a sum is made of them; some rows are small, one is zeros.
std::vector<float> rows_of_x(uint32_t rows, int64_t k) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (uint32_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) x.push_back(r == 3 ? 0 : std::ldexp(normal(random), static_cast<int>(r % 5) * -6));
  }
  return x;
}

// y of a step is what the definition in float64 says, within so much of the sum of the magnitudes.
void expect_exact(const QuantizedSite& site, const StepCase& step, bool fused, double tolerance) {
  const std::vector<float> y = site.run(step, fused);
  const auto want = site.exact(step, fused);
  ASSERT_EQ(y.size(), want.y.size());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(double{y[i]}, want.y[i], tolerance * want.magnitude[i]) << i;
}

// Returns k numbers of a row as they are multiplied: the largest of a group becomes 448 of its scale, and the others the
// nearest number that e4m3 has, of all that it has.
std::vector<double> rounded_by_groups(const float* x, size_t k, size_t group) {
  static const CodedForm kForm = coded_form("fp8");
  std::vector<double> rounded;
  for (size_t begin = 0; begin < k; begin += group) {
    const size_t end = std::min(begin + group, k);
    const float scale = coded_detail::magnitude(x + begin, end - begin) / 448;
    for (size_t i = begin; i < end; ++i) {
      rounded.push_back(scale == 0 ? 0 : coded_detail::nearest(kForm, double{x[i] / scale}) * double{scale});
    }
  }
  return rounded;
}

// y of bare products is what x rounded by a scale for each group of a row makes of the weights that the scheme holds.
void expect_rounded_by_groups(const QuantizedSite& site, const SiteCase& c, const std::vector<float>& x, size_t group,
                              double tolerance) {
  const auto k = static_cast<size_t>(c.k), columns = static_cast<size_t>(site.columns());
  const auto rows = static_cast<uint32_t>(x.size() / k);
  const std::vector<float> y = site.run({.rows = rows, .live = rows, .x = x}, false);
  ASSERT_EQ(y.size(), rows * columns);
  for (uint32_t r = 0; r < rows; ++r) {
    const std::vector<double> rounded = rounded_by_groups(&x[r * k], k, group);
    size_t column = 0;
    for (size_t m = 0; m < c.rows.size(); ++m) {
      for (int64_t row = 0; row < c.rows[m]; ++row, ++column) {
        double sum = 0, magnitude = 0;
        for (size_t i = 0; i < k; ++i) {
          const double product = rounded[i] * site.weight(m, row, static_cast<int64_t>(i));
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_NEAR(double{y[r * columns + column]}, sum, tolerance * magnitude)
            << "row " << r << ", column " << column;
      }
    }
  }
}

void expect_rounded_by_rows(const QuantizedSite& site, const SiteCase& c, const std::vector<float>& x,
                            double tolerance) {
  expect_rounded_by_groups(site, c, x, static_cast<size_t>(c.k), tolerance);
}

TEST_P(Fp8Activations, HaveAScaleARow) {
  for (const std::string label : {"fp8_one", "fp8_blocks", "fp8_compressed_static"}) {
    for (const int64_t k : {128, 384, 1152}) {
      const SiteCase c = site_of(label, {64, 32}, k);
      const QuantizedSite site(open("token"), c);
      for (const uint32_t rows : {1U, 7U, 40U}) {
        SCOPED_TRACE(label + ", " + std::to_string(k) + " columns, " + std::to_string(rows) + " rows");
        expect_rounded_by_rows(site, c, rows_of_x(rows, k), is_cuda() && rows > 8 ? 2e-3 : 2e-5);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// More than 1024 rows are multiplied as codes where the GPU can: then weights are read as they are packed and as
// codes, of which a matrix has whole sixteens of rows and whole sixty-fours of columns. 2100 rows of 40 columns are
// sums of two pieces, which read codes each.
TEST_P(Fp8Activations, HaveAScaleARowOfMany) {
  const auto hold = [](std::vector<float> file, int64_t k) {
    for (size_t at = 0; at < file.size(); at += static_cast<size_t>(k)) {
      hold_coded(coded_form("fp8"), &file[at], static_cast<size_t>(k));
    }
    return file;
  };
  const struct {
    std::vector<int64_t> rows;
    int64_t k;
    uint32_t rows_of_x;
    double bytes;  // so many bytes of packed weights and codes are read
  } cases[] = {
      {{40}, 200, 2100, 3 * 48 * 256}, {{24, 17}, 203, 1100, 2 * 48 * 256}, {{64, 32}, 384, 1100, 2 * 96 * 384}};
  for (const auto& of : cases) {
    SCOPED_TRACE(std::to_string(of.k) + " columns");
    SiteCase c{.source = std::vector<tenon_format>(of.rows.size(), TENON_F32), .rows = of.rows, .k = of.k};
    c.lookup = false;
    const QuantizedSite site(open("token"), c, 3, hold);
    if (multiplies_codes()) {
      EXPECT_EQ(site.cost({.rows = of.rows_of_x, .live = of.rows_of_x}).read[0], of.bytes);
    }
    expect_rounded_by_rows(site, c, rows_of_x(of.rows_of_x, of.k), many_rows_tolerance());
    if (HasFatalFailure()) return;
  }
}

// A scale of 128 columns, whatever the weights' scales are of. Groups of a row differ in size; one is zeros, and the last
// one of 203 columns has 75.
TEST_P(Fp8Activations, HaveAScaleAGroup) {
  const auto rows_of_groups = [](uint32_t rows, int64_t k) {
    std::vector<float> x = rows_of_x(rows, k);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t column = i % static_cast<size_t>(k);
      x[i] = column / 128 == 1 && i / static_cast<size_t>(k) == 2
                 ? 0
                 : std::ldexp(x[i], static_cast<int>(column / 128) * 5);
    }
    return x;
  };
  const auto expect_exact_rows = [&](const QuantizedSite& site, const SiteCase& c) {
    for (const uint32_t rows : {1U, 7U, 80U}) {
      SCOPED_TRACE(std::to_string(c.k) + " columns, " + std::to_string(rows) + " rows");
      expect_rounded_by_groups(site, c, rows_of_groups(rows, c.k), 128, is_cuda() && rows > 8 ? 2e-3 : 2e-5);
    }
  };
  for (const std::string label : {"fp8_one", "fp8_matrix", "fp8_blocks"}) {
    for (const int64_t k : {128, 384, 1152}) {
      SCOPED_TRACE(label);
      const SiteCase c = site_of(label, {64, 32}, k);
      expect_exact_rows(QuantizedSite(open("block"), c), c);
      if (label == "fp8_blocks") expect_exact_rows(QuantizedSite(open("auto"), c), c);
      if (HasFatalFailure()) return;
    }
  }
  SiteCase plain{.source = {TENON_F32}, .rows = {40}, .k = 203};
  plain.lookup = false;
  expect_exact_rows(QuantizedSite(open("block"), plain, 3,
                                  [](std::vector<float> file, int64_t k) {
                                    for (size_t at = 0; at < file.size(); at += static_cast<size_t>(k)) {
                                      hold_coded(coded_form("fp8"), &file[at], static_cast<size_t>(k));
                                    }
                                    return file;
                                  }),
                    plain);
}

// With RMSNorm a number may be rounded to the neighbour: of 384 about equal ones that is a sixteenth of one of them, or
// of one that is larger than most a little more. By the scale of another matrix all would be rounded otherwise.
TEST_P(Fp8Activations, AreRoundedAfterTheNorm) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{96}, {64, 32}}) {
    const StepCase step{.rows = 6, .live = 5, .pitch = 3, .norm = true};
    for (const char* label : {"fp8_matrix", "fp8_blocks"}) {
      const QuantizedSite site(open("auto"), site_of(label, rows, 384), 3, nullptr, step);
      ASSERT_TRUE(site.claims(step));
      expect_exact(site, step, true, 1e-3);
    }
  }
}

TEST_P(Fp8Activations, GoWithWhatIsClaimedAfterTheProduct) {
  for (const std::vector<tenon_id>& epilogue :
       {std::vector<tenon_id>{TENON_F_BIAS, TENON_F_ADD}, std::vector<tenon_id>{TENON_F_SILU_MUL}}) {
    const StepCase step{.rows = 6, .live = 6, .epilogue = epilogue};
    const QuantizedSite site(open("static"), site_of("fp8_compressed_static", {96}, 384), 3, nullptr, step);
    ASSERT_TRUE(site.claims(step));
    expect_exact(site, step, true, 1e-4);
  }
}

TEST_P(Fp8Activations, OfManyRowsAreRoundedAfterTheNorm) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{96}, {64, 32}}) {
    for (const uint32_t pitch : {0U, 3U}) {
      const StepCase step{.rows = 1100, .live = 1100, .pitch = pitch, .norm = true};
      const QuantizedSite site(open("auto"), site_of("fp8_matrix", rows, 384), 3, nullptr, step);
      ASSERT_TRUE(site.claims(step));
      expect_exact(site, step, true, 2e-3);
    }
  }
}

// Products of codes are followed by what follows all matrices, also where each of them is a product of its own.
TEST_P(Fp8Activations, OfManyRowsGoWithWhatIsClaimedAfterTheProduct) {
  const uint32_t many = is_cuda() ? 2100 : 130;  // rows of a prompt
  for (const std::vector<tenon_id>& epilogue : {std::vector<tenon_id>{TENON_F_ADD},
                                                {TENON_F_BIAS, TENON_F_ADD},
                                                {TENON_F_SILU_MUL},
                                                {TENON_F_BIAS, TENON_F_SILU_MUL}}) {
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{96}, {48, 48}}) {
      const StepCase step{.rows = many, .live = many, .epilogue = epilogue};
      const QuantizedSite site(open("static"), site_of("fp8_compressed_static", rows, 256), 3, nullptr, step);
      ASSERT_EQ(site.claims(step), rows.size() == 1 || multiplies_codes());
      if (site.claims(step)) expect_exact(site, step, true, is_cuda() ? 4e-3 : 1e-4);
      if (HasFatalFailure()) return;
    }
  }
}

// The file's settings for x can be left alone.
TEST_P(Fp8Activations, CanStayAsTheyAre) {
  SiteCase c = site_of("fp8_matrix", {64, 32}, 384);
  c.stored = [make = c.stored](const conformance::FileShape& shape, std::mt19937& random) {
    FileMatrix m = make(shape, random);
    m.x_scale = 0;
    return m;
  };
  const QuantizedSite site(open("f32"), c);
  expect_exact(site, {.rows = 7, .live = 7}, false, 2e-5);
}

TEST_P(Fp8Activations, OfANumberThatIsNotFiniteAnswerNan) {
  for (const char* activations : {"static", "token", "block"}) {
    const QuantizedSite site(open(activations), site_of("fp8_matrix", {64, 32}, 384));
    for (const uint32_t rows : {2U, 1100U}) {
      for (const float number : {INFINITY, -INFINITY, NAN}) {
        std::vector<float> x = rows_of_x(rows, 384);
        x[384 + 100] = number;
        const std::vector<float> y = site.run({.rows = rows, .live = rows, .x = x}, false);
        for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i / 96 == 1) << activations << " " << i;
      }
    }
  }
}

TEST_P(Fp8Activations, AreRefusedByNameWithoutAScale) {
  SiteCase site = site_of("fp8_matrix", {64}, 256);
  EXPECT_EQ(refusal("auto", site), "");
  site.stored = [make = site.stored](const conformance::FileShape& shape, std::mt19937& random) {
    FileMatrix m = make(shape, random);
    std::erase_if(m.tensors, [](const FileMatrix::Tensor& t) { return std::string(t.stored.name) == "input_scale"; });
    return m;
  };
  EXPECT_THAT(refusal("auto", site), HasSubstr("\"test.matrix.input_scale\" is missing; expected one number in f32"));
  EXPECT_EQ(refusal("f32", site), "");
  EXPECT_EQ(refusal("token", site), "");
  EXPECT_THAT(refusal("static", site_of("fp8_one", {64}, 256)), HasSubstr("\"test.matrix.input_scale\" is missing"));
  EXPECT_THAT(refusal("static", SiteCase{.rows = {64}, .k = 256}), HasSubstr("\"test.matrix.input_scale\" is missing"));
}

TEST_P(Fp8Activations, AreRefusedByKeyInOtherForms) {
  const auto said = [](const std::string& before, const std::string& after) {
    SiteCase site = site_of("fp8_compressed_static", {64}, 256);
    site.description.replace(site.description.rfind(before), before.size(), after);
    return refusal("auto", site);
  };
  EXPECT_THAT(said("\"tensor\"", "\"channel\""),
              HasSubstr("input_activations.strategy is \"channel\"; expected \"tens"));
  EXPECT_THAT(said("\"dynamic\": false", "\"dynamic\": true"),
              HasSubstr("input_activations.strategy is \"tensor\"; expected \"token\" or \"group\""));
  EXPECT_THAT(said("\"dynamic\": false", "\"scale_dtype\": \"torch.bfloat16\", \"dynamic\": true"),
              HasSubstr("input_activations.scale_dtype is \"torch.bfloat16\"; expected no such key, or null"));
  EXPECT_THAT(said("\"group_size\": null, \"strategy\": \"tensor\", \"dynamic\": false",
                   "\"strategy\": \"group\", \"dynamic\": true"),
              HasSubstr("input_activations.group_size is missing; expected a positive number"));
  EXPECT_THAT(said("\"float\"", "\"int\""), HasSubstr("input_activations.type is \"int\"; expected \"float\""));
  EXPECT_THAT(said("\"num_bits\": 8", "\"num_bits\": 4"), HasSubstr("input_activations.num_bits is 4; expected 8"));
}

TEST_P(Fp8Activations, AreRefusedByKeyWithScalesInAnotherFormat) {
  SiteCase site = site_of("fp8_blocks_of_powers", {64}, 256);
  site.description.replace(site.description.find("ue8m0"), 5, "e5m2");
  EXPECT_THAT(refusal("auto", site), HasSubstr("scale_fmt is \"e5m2\"; expected \"float\" or \"ue8m0\""));
  site = site_of("fp8_one", {64}, 256);
  site.description.insert(1, R"("scale_fmt": "ue8m0", )");
  EXPECT_THAT(refusal("auto", site), HasSubstr("scale_fmt is \"ue8m0\"; expected \"float\""));
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Activations, testing::Values("cpu", "cuda"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace tenon::test
