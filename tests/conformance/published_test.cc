// Matrices in the forms of published checkpoints are held as they are stored, on every device that is here and with
// every instruction set. conformance/published_forms.h makes them from the published definitions.
#include <gtest/gtest.h>

#include <algorithm>

#include "conformance/published_forms.h"
#include "support/byte_dots.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::published_forms;
using conformance::published_site;
using conformance::PublishedForm;
using conformance::QuantizedSite;
using conformance::SiteCase;
using conformance::StepCase;

std::unique_ptr<conformance::Component> open(const std::string& scheme, uint64_t isa = machine_isa()) {
  return std::make_unique<Component>("quantization", scheme, std::vector<Setting>{}, isa);
}

struct Case {
  PublishedForm form;
  std::string device;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.form.label << " on " << c.device;
}

// Rounding may cost this share of a product's magnitude. On a CPU x may become 16 bits: a number of it is off by 1.5e-5
// of the largest of 32, and of NVFP4's random scales one may outweigh all others, so that 16 numbers, which may be
// small, are all that counts. published_int16_test.cc holds products to x as it is rounded. On a GPU a few rows are
// multiplied exactly but for x, which is two halves, and the sixteen numbers of nf4 and fp4, which are rounded to fp16. A
// row alone multiplies numbers of nf4 that are off by up to 4.75e-4. Products of many rows round all to fp16.
// Products of rows of x in int8 are exact integers everywhere.
double tolerance(const Case& c, const StepCase& step) {
  if (c.form.x_in_int8) return 1e-6;
  if (c.device == "cpu") return c.form.label == "nvfp4_packed" ? 1e-4 : 2e-5;
  const bool nf4 = c.form.label.find("nf4") != std::string::npos;
  if (nf4 && step.rows == 1) return 1e-3;
  const bool sixteen = nf4 || c.form.label.find("fp4") != std::string::npos;
  return step.rows > 8 ? 2e-3 : sixteen ? 5e-4 : 2e-5;
}

class PublishedForms : public testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<conformance::Component> open_scheme() {
    const auto& [form, device] = GetParam();
    if (device == "cpu") return open(form.scheme);
    return std::make_unique<conformance::Component>(plugins().load("quantization", form.scheme, device),
                                                    *test::device(device), std::vector<Setting>{});
  }
  void SetUp() override {
    if (device(GetParam().device) == nullptr) GTEST_SKIP() << "no device " << GetParam().device;
  }
};

TEST_P(PublishedForms, AreHeldAsTheyAre) {
  std::vector<int64_t> widths{128, 384, 1152};
  // On a GPU wide rows in another order are brought into it in other ways.
  if (GetParam().form.permuted) widths.insert(widths.end(), {12544, 16512});
  for (const int64_t k : widths) {
    SCOPED_TRACE(k);
    const QuantizedSite site(open_scheme(), published_site(GetParam().form, {64, 32}, k));
    EXPECT_NE(site.footprint().flags & TENON_FOOTPRINT_EXACT, 0U);
    for (const StepCase& step :
         {StepCase{}, StepCase{.rows = 7, .live = 6, .pitch = 3, .own_live = true}, StepCase{.rows = 40, .live = 33}}) {
      const std::vector<float> y = site.run(step, false);
      const auto want = site.exact(step, false);
      const double share = tolerance(GetParam(), step);
      ASSERT_EQ(y.size(), want.y.size());
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(double{y[i]}, want.y[i], share * want.magnitude[i] + 1e-6) << i;
    }
  }
}

// A norm before columns in another order is part of a product of few rows.
TEST_P(PublishedForms, InAnotherOrderComeAfterANormOnAGpu) {
  if (!GetParam().form.permuted) GTEST_SKIP() << "columns are in the order of x";
  if (GetParam().device == "cpu") GTEST_SKIP() << "there the norm is an op of its own";
  for (const int64_t k : {128, 1152, 12288}) {
    SCOPED_TRACE(k);
    const StepCase alone{.norm = true};
    const QuantizedSite site(open_scheme(), published_site(GetParam().form, {64, 32}, k), 3, nullptr, alone);
    ASSERT_TRUE(site.claims(alone));
    for (const StepCase& step : {alone, StepCase{.rows = 7, .live = 6, .pitch = 3, .own_live = true, .norm = true}}) {
      const std::vector<float> y = site.run(step, true);
      const auto want = site.exact(step, true);
      const double share = tolerance(GetParam(), step);
      ASSERT_EQ(y.size(), want.y.size());
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(double{y[i]}, want.y[i], share * want.magnitude[i] + 1e-6) << i;
    }
  }
}

// Returns the same site without a word of how x is rounded.
SiteCase with_x_as_it_is(SiteCase c) {
  c.stored = [make = c.stored](const conformance::FileShape& shape, std::mt19937& random) {
    conformance::FileMatrix m = make(shape, random);
    m.x_steps = 0;
    return m;
  };
  return c;
}

// On a GPU x of bitsandbytes' experts in int8 stays as it is.
TEST_P(PublishedForms, OfExpertsToo) {
  const Case& p = GetParam();
  const bool x_stays = p.form.scheme == "bitsandbytes" && p.form.x_in_int8 && p.device == "cuda";
  const SiteCase rounded = published_site(p.form, {64, 32}, 384, 3), c = x_stays ? with_x_as_it_is(rounded) : rounded;
  std::unique_ptr<QuantizedSite> site;
  try {
    site = std::make_unique<QuantizedSite>(open_scheme(), c);
  } catch (const std::exception& e) {
    const std::string why = e.what();
    ASSERT_TRUE(p.form.x_in_int8 && p.device == "cuda") << why;
    ASSERT_NE(why.find("expert"), std::string::npos) << why;
    GTEST_SKIP() << why;
  }
  for (const uint32_t rows : {1U, 6U, 40U}) {
    StepCase step{.rows = rows, .live = rows};
    for (uint32_t r = 0; r < rows; ++r) step.expert.push_back(static_cast<int32_t>((3 * r + 1) % 4) - 1);
    const std::vector<float> y = site->run(step, false);
    const auto want = site->exact(step, false);
    // Rows of experts are multiplied exactly however many there are.
    const double share = x_stays ? 2e-5 : tolerance(p, {});
    ASSERT_EQ(y.size(), want.y.size());
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(double{y[i]}, want.y[i], share * want.magnitude[i] + 1e-6) << i;
  }
}

// x of a row is gathered before the product looks at the row's expert.
TEST_P(PublishedForms, RefuseAnExpertThatDoesNotExistOnTheCpu) {
  if (GetParam().device != "cpu") GTEST_SKIP() << "elsewhere the row is skipped";
  const QuantizedSite site(open_scheme(), published_site(GetParam().form, {64, 32}, 384, 3));
  try {
    site.run({.rows = 2, .live = 2, .expert = {0, 3000000}}, false);
    ADD_FAILURE() << "no error";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string(e.what()).find("row 1 wants expert 3000000 of 3"), std::string::npos) << e.what();
  }
}

// Sets with dot products of bytes multiply x in 16 bits, but that of fp8 and what becomes int8:
// published_int16_test.cc.
TEST_P(PublishedForms, HaveTheSameBitsInEveryInstructionSet) {
  if (GetParam().device != "cpu") GTEST_SKIP() << "a GPU has no other";
  const PublishedForm& form = GetParam().form;
  const SiteCase c = published_site(form, {64, 32}, 256);
  const QuantizedSite plain(open(form.scheme, 0), c);
  const uint64_t widest = form.scheme == "fp8" || form.x_in_int8 ? machine_isa() : machine_isa() & ~kByteDots;
  for (const uint64_t isa : {uint64_t{TENON_ISA_AVX2}, widest}) {
    if ((isa & ~machine_isa()) != 0) continue;
    for (const StepCase& step : {StepCase{}, StepCase{.rows = 5, .live = 5}}) {
      EXPECT_EQ(QuantizedSite(open(form.scheme, isa), c).run(step, false), plain.run(step, false)) << isa;
    }
  }
}

// A row of x is rounded by itself, whatever stands beside it in the step, and on any number of threads.
TEST_P(PublishedForms, WithXInInt8HaveRowsThatDoNotDependOnOthers) {
  if (GetParam().device != "cpu" || !GetParam().form.x_in_int8) GTEST_SKIP() << "a GPU has other sums for many rows";
  const SiteCase c = published_site(GetParam().form, {64, 32}, 384);
  const QuantizedSite site(open_scheme(), c);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{9} * 384);
  for (float& f : x) f = 3 * normal(random);
  const std::vector<float> all = site.run({.rows = 9, .live = 9, .x = x}, false);
  for (size_t r = 0; r < 9; ++r) {
    const auto row = x.begin() + static_cast<int64_t>(r * 384);
    const std::vector<float> alone = site.run({.rows = 1, .live = 1, .x = {row, row + 384}}, false);
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + static_cast<int64_t>(r * alone.size()))) << r;
  }
}

// bitsandbytes' x can be left as it is, and then its numbers are neither rounded nor looked at.
TEST(PublishedBitsAndBytes, LeavesXAsItIsIfAsked) {
  const auto& forms = published_forms();
  const auto form =
      std::find_if(forms.begin(), forms.end(), [](const auto& f) { return f.label == "bitsandbytes_int8"; });
  const QuantizedSite site(
      std::make_unique<Component>("quantization", "bitsandbytes", std::vector<Setting>{{"activations", "f32"}}),
      with_x_as_it_is(published_site(*form, {64, 32}, 384)));
  const StepCase step{.rows = 7, .live = 7};
  const std::vector<float> y = site.run(step, false);
  const auto want = site.exact(step, false);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(double{y[i]}, want.y[i], 2e-5 * want.magnitude[i]) << i;
}

// A norm, and what stands after the product, is claimed with x in int8, too. A GPU rounds the normed x a little
// otherwise, and has gate and up in fp16 with many rows, so that some of x become the next code.
class PublishedInt8 : public PublishedForms {};

TEST_P(PublishedInt8, ClaimsWhatStandsAroundTheProduct) {
  const auto& [form, device] = GetParam();
  for (const std::vector<tenon_id>& epilogue :
       {std::vector<tenon_id>{TENON_F_BIAS, TENON_F_ADD}, std::vector<tenon_id>{TENON_F_SILU_MUL}}) {
    const StepCase around{.rows = 1, .live = 1, .norm = true, .epilogue = epilogue};
    const QuantizedSite site(open_scheme(), published_site(form, {48, 48}, 256), 3, nullptr, around);
    EXPECT_TRUE(site.claims(around));
    for (const uint32_t rows : {1U, 7U, 40U}) {
      const StepCase step{.rows = rows, .live = rows, .norm = true, .epilogue = epilogue};
      const std::vector<float> y = site.run(step, true);
      const auto want = site.exact(step, true);
      const double share = device == "cpu" ? 1e-6 : 2e-3;
      ASSERT_EQ(y.size(), want.y.size());
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(double{y[i]}, want.y[i], share * want.magnitude[i] + 1e-6) << i;
    }
  }
}

std::vector<Case> cases() {
  const std::vector<std::string> schemes = installed("quantization");
  std::vector<Case> all;
  for (const char* device : {"cpu", "cuda"}) {
    for (const PublishedForm& form : published_forms()) {
      if (std::find(schemes.begin(), schemes.end(), form.scheme) != schemes.end()) all.push_back({form, device});
    }
  }
  return all;
}
std::vector<Case> int8_cases() {
  std::vector<Case> all = cases();
  std::erase_if(all, [](const Case& c) { return !c.form.x_in_int8 || c.form.x_apart; });
  return all;
}
std::string label(const testing::TestParamInfo<Case>& p) {
  return p.param.form.label + "_" + p.param.device;
}
INSTANTIATE_TEST_SUITE_P(All, PublishedForms, testing::ValuesIn(cases()), label);
INSTANTIATE_TEST_SUITE_P(All, PublishedInt8, testing::ValuesIn(int8_cases()), label);

}  // namespace
}  // namespace tenon::test
