// These tests look at what every component of a kind owes, over everything that ships, on every device, in every
// setting. Where there is no GPU, what is for one is skipped by name.
#include <gtest/gtest.h>

#include <ostream>

#include "conformance/suite.h"
#include "support/component.h"

namespace tenon::test {
namespace {

struct Case {
  const LoadedComponent* component;
  conformance::Variant variant;
  const conformance::Check* check;

  std::string name() const {
    const ComponentInfo& info = component->info;
    return info.kind + '_' + info.name + '_' + info.device + (variant.label.empty() ? "" : '_' + variant.label) + '_' +
           check->name;
  }
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name();
}

std::string letters_of(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

// ctest starts a process for each case. It loads the case's own component and none of the
// others, which takes longer than most cases run.
bool may_run(const ComponentInfo& info) {
  const std::string filter = GTEST_FLAG_GET(filter);
  const std::string one = "All/Conformance.Holds/";
  if (!filter.starts_with(one) || filter.find_first_of("*?:-") != std::string::npos) return true;
  return filter.substr(one.size()).starts_with(letters_of(info.kind + '_' + info.name + '_' + info.device + '_'));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ComponentInfo& info : plugins().components()) {
    if (info.library.empty() || !may_run(info)) continue;
    const LoadedComponent& component = plugins().load(info.kind, info.name, info.device);
    for (const conformance::Variant& variant : conformance::variants_of(component)) {
      for (const conformance::Check& check : conformance::checks_of(info.kind)) {
        all.push_back({&component, variant, &check});
      }
    }
  }
  return all;
}

class Conformance : public testing::TestWithParam<Case> {};

TEST_P(Conformance, Holds) {
  const auto& [component, variant, check] = GetParam();
  try {
    check->run(conformance::Subject(plugins(), *component, variant));
  } catch (const NotTested& e) {
    GTEST_SKIP() << e.what();
  }
}

std::string label(const testing::TestParamInfo<Case>& info) {
  return letters_of(info.param.name());
}
INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(cases()), label);

}  // namespace
}  // namespace tenon::test
