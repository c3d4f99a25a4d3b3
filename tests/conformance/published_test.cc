// Matrices in the forms of published checkpoints are held as they are stored, with every instruction set. conformance/published_forms.h makes them from the published definitions.
#include <gtest/gtest.h>

#include <algorithm>

#include "conformance/published_forms.h"
#include "support/component.h"

namespace tenon::conformance {
static void PrintTo(const PublishedForm& form, std::ostream* out) {
  *out << form.label;
}
}  // namespace tenon::conformance

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

}  // namespace
}  // namespace tenon::test
