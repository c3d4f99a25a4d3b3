// Matrices in the forms of published checkpoints: held as they are stored, with every instruction set, and refused by name
// where something is wrong with them. conformance/published_forms.h makes them from the published definitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "conformance/published_forms.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;
using conformance::published_forms;
using conformance::published_site;
using conformance::PublishedForm;
using conformance::QuantizedSite;
using conformance::SiteCase;
using conformance::StepCase;
using ::testing::HasSubstr;

std::unique_ptr<conformance::Component> open(const std::string& scheme, uint64_t isa = machine_isa()) {
  return std::make_unique<Component>("quantization", scheme, std::vector<Setting>{}, isa);
}

const PublishedForm& form_labelled(const std::string& label) {
  for (const PublishedForm& form : published_forms()) {
    if (form.label == label) return form;
  }
  throw std::runtime_error(label);
}

class PublishedForms : public testing::TestWithParam<PublishedForm> {};

TEST_P(PublishedForms, AreHeldAsTheyAre) {
  for (const int64_t k : {128, 384}) {
    SCOPED_TRACE(k);
    const QuantizedSite site(open(GetParam().scheme), published_site(GetParam(), {64, 32}, k));
    EXPECT_NE(site.footprint().flags & TENON_FOOTPRINT_EXACT, 0U);
    for (const StepCase& step : {StepCase{}, StepCase{.rows = 7, .live = 6, .pitch = 3, .own_live = true}}) {
      const std::vector<float> y = site.run(step, false);
      const auto want = site.exact(step, false);
      ASSERT_EQ(y.size(), want.y.size());
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(double{y[i]}, want.y[i], 2e-5 * want.magnitude[i] + 1e-6) << i;
    }
  }
}

TEST_P(PublishedForms, HaveTheSameBitsInEveryInstructionSet) {
  const SiteCase c = published_site(GetParam(), {64, 32}, 256);
  const StepCase step{.rows = 5, .live = 5};
  const std::vector<float> plain = QuantizedSite(open(GetParam().scheme, 0), c).run(step, false);
  for (const uint64_t isa : {uint64_t{TENON_ISA_AVX2}, machine_isa()}) {
    if ((isa & ~machine_isa()) != 0) continue;
    EXPECT_EQ(QuantizedSite(open(GetParam().scheme, isa), c).run(step, false), plain) << isa;
  }
}

std::vector<PublishedForm> installed_forms() {
  const std::vector<std::string> schemes = installed("quantization");
  std::vector<PublishedForm> forms;
  for (const PublishedForm& form : published_forms()) {
    if (std::find(schemes.begin(), schemes.end(), form.scheme) != schemes.end()) forms.push_back(form);
  }
  return forms;
}
INSTANTIATE_TEST_SUITE_P(All, PublishedForms, testing::ValuesIn(installed_forms()),
                         [](const auto& p) { return p.param.label; });

// What is said of a matrix of 64 rows of 256 that `damage` was done to; "" if it is taken.
std::string refusal(const std::string& label, const std::function<void(FileMatrix&)>& damage,
                    const std::string& description = "") {
  const PublishedForm& form = form_labelled(label);
  SiteCase c = published_site(form, {64}, 256);
  c.stored = [make = form.make, damage](int64_t n, int64_t k, std::mt19937& random) {
    FileMatrix m = make(n, k, random);
    damage(m);
    return m;
  };
  if (!description.empty()) c.description = description;
  try {
    const QuantizedSite site(open(form.scheme), c);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}
void nothing(FileMatrix&) {}
FileMatrix::Tensor& tensor(FileMatrix& m, const std::string& name) {
  for (FileMatrix::Tensor& t : m.tensors) {
    if (name == t.stored.name) return t;
  }
  throw std::runtime_error(name);
}
template <class T>
std::function<void(FileMatrix&)> with_value(const std::string& name, size_t i, T value) {
  return [=](FileMatrix& m) { std::memcpy(tensor(m, name).bytes.data() + i * sizeof(T), &value, sizeof(T)); };
}

TEST(DamagedFp8, IsRefusedByName) {
  EXPECT_EQ(refusal("fp8_blocks", nothing), "");
  EXPECT_THAT(refusal("fp8_blocks", [](FileMatrix& m) { tensor(m, "weight_scale_inv").stored.dim[1] = 3; }),
              HasSubstr("\"test.matrix.weight_scale_inv\" is f32 (1, 3); expected f32 (1, 2)"));
  EXPECT_THAT(refusal("fp8_blocks", with_value("weight_scale_inv", 1, std::nanf(""))),
              HasSubstr("\"test.matrix.weight_scale_inv\": number 1 is not finite"));
  EXPECT_THAT(refusal("fp8_blocks", with_value("weight", 5, uint8_t{0x7f})), HasSubstr("a weight of row 0 is NaN"));
  EXPECT_THAT(refusal("fp8_matrix", with_value("input_scale", 0, INFINITY)),
              HasSubstr("\"test.matrix.input_scale\": number 0 is not finite"));
  EXPECT_THAT(refusal("fp8_blocks", nothing, R"({"quant_method": "fp8", "weight_block_size": [128, 100]})"),
              HasSubstr("blocks of 128 x 100 weights"));
  EXPECT_THAT(refusal("fp8_one", nothing, R"({"quant_method": "fp8", "twist": 3})"),
              HasSubstr("config.json: quantization_config.twist is 3; expected no such key"));
}

}  // namespace
}  // namespace tenon::test
