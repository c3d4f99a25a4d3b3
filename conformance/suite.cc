// Here are the lists of checks by kind, and the variants of settings that each check runs with. A check throws what is
// wrong, or NotTested where the component's device is not there. Where a kind has the check of bounds, all others need
// it to pass.
#include "conformance/suite.h"

#include <algorithm>
#include <map>

#include "conformance/suites.h"
#include "cpu/cpu_device.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon::conformance {
namespace {

const std::map<std::string_view, std::vector<Check>>& all_checks() {
  static const std::map<std::string_view, std::vector<Check>> kAll = {{"attention", attention_checks()},
                                                                      {"draft", draft_checks()},
                                                                      {"grammar", grammar_checks()},
                                                                      {"kv_cache", kv_cache_checks()},
                                                                      {"op", op_checks()},
                                                                      {"quantization", quantization_checks()},
                                                                      {"sampler", sampler_checks()},
                                                                      {"scheduler", scheduler_checks()}};
  return kAll;
}

constexpr const char* kPrefix = "conformance.";

// A component for the host serves every device.
std::string device_of(const LoadedComponent& component) {
  return component.info.device == kHostDevice ? "cpu" : component.info.device;
}

std::string sentence(const Error& e) {
  return e.diagnostics().front().message;
}

std::vector<std::pair<std::string, uint64_t>> instruction_sets(const LoadedComponent& component) {
  const uint64_t all = machine_isa();
  if (component.info.device != "cpu" || all == 0) return {{"", all}};
  std::vector<std::pair<std::string, uint64_t>> sets = {{"", all}, {"scalar", 0}};
  if ((all & TENON_ISA_AVX512) != 0) sets.insert(sets.begin() + 1, {"avx2", TENON_ISA_AVX2});
  return sets;
}

// Returns the choices of a parameter. Of very many, such as all multiples of a number, these are the first and the last.
std::vector<std::string> tried_choices(const tenon_param_spec& spec) {
  constexpr size_t kMany = 16, kFirst = 4;
  std::vector<std::string> choices = choices_of(spec);
  if (choices.size() > kMany) choices.erase(choices.begin() + kFirst, choices.end() - 1);
  return choices;
}

void run_check(const Check& check, const std::vector<std::filesystem::path>& plugin_dirs,
               const std::filesystem::path& library) {
  Registry registry;
  register_cpu_device(registry);
  for (const std::filesystem::path& root : plugin_dirs) registry.add_root(root);
  registry.add_library(library);
  const std::vector<ComponentInfo> all = registry.components();
  const auto info = std::find_if(all.begin(), all.end(), [&](const ComponentInfo& c) { return c.library == library; });
  if (info == all.end()) fail("the registry does not list the library");
  const LoadedComponent& component = registry.load(info->kind, info->name, info->device);
  for (const Variant& variant : variants_of(component)) {
    try {
      check.run(Subject(registry, component, variant));
    } catch (const Error& e) {
      fail((variant.label.empty() ? "" : variant.label + ": ") + sentence(e));
    }
  }
}

}  // namespace

void fail(const std::string& why) {
  throw Error(ErrorCode::kPlugin, why);
}

std::vector<Variant> variants_of(const LoadedComponent& component) {
  std::vector<Variant> chosen = {{}};
  const ParamValues defaults = example_values(*component.schema);
  for (size_t i = 0; i < component.schema->count; ++i) {
    const tenon_param_spec spec = spec_at(*component.schema, i);
    for (const std::string& choice : tried_choices(spec)) {
      const ParamValue value = spec.type == TENON_PARAM_INT ? ParamValue(int64_t{std::stoll(choice)}) : choice;
      if (value == defaults.get(i)) continue;
      // Labels are names of tests, and two parameters may have a choice of one name.
      const bool taken = std::any_of(chosen.begin(), chosen.end(), [&](const Variant& v) { return v.label == choice; });
      const std::string label = taken ? spec.name + ('_' + choice) : choice;
      chosen.push_back({.label = label, .settings = {{spec.name, value}}});
    }
  }
  std::vector<Variant> all;
  for (const Variant& v : chosen) {
    for (const auto& [name, isa] : instruction_sets(component)) {
      const std::string both = v.label.empty() || name.empty() ? v.label + name : v.label + '_' + name;
      all.push_back({both, v.settings, isa});
    }
  }
  return all;
}

Subject::Subject(Registry& registry, const LoadedComponent& component, const Variant& variant)
    : component_(component), variant_(variant) {
  try {
    device_ = std::make_unique<Device>(registry, device_of(component), variant.isa);
  } catch (const Error& e) {
    throw NotTested("there is no device " + device_of(component) + " here: " + sentence(e));
  }
}

bool Subject::has_own(uint32_t rule) const {
  return (sdk::read_abi(component_.component).own_rules & rule) != 0;
}

std::unique_ptr<Component> Subject::open(const std::vector<Setting>& settings) const {
  return std::make_unique<Component>(component_, *device_, settings);
}

std::string Subject::text(const std::string& parameter) const {
  const tenon_param_schema& schema = *component_.schema;
  const size_t i = find_param(schema, parameter);
  if (i == schema.count || spec_at(schema, i).type != TENON_PARAM_TEXT) return "";
  const auto set = std::find_if(variant_.settings.begin(), variant_.settings.end(),
                                [&](const Setting& s) { return s.first == parameter; });
  return std::get<std::string>(set != variant_.settings.end() ? set->second : example_values(schema).get(i));
}

const std::vector<Check>& checks_of(std::string_view kind) {
  static const std::vector<Check> kNone;
  const auto found = all_checks().find(kind);
  return found == all_checks().end() ? kNone : found->second;
}

std::vector<KindCheck> kind_checks(std::vector<std::filesystem::path> plugin_dirs) {
  std::vector<KindCheck> all;
  for (const auto& [kind, checks] : all_checks()) {
    const bool has_bounds = std::string_view(checks.front().name) == kBounds;
    for (const Check& check : checks) {
      std::vector<std::string> needs;
      if (has_bounds && &check != &checks.front()) needs.push_back(kPrefix + std::string(kBounds));
      all.push_back(
          {std::string(kind), kPrefix + std::string(check.name), needs,
           [&check, plugin_dirs](const std::filesystem::path& library) { run_check(check, plugin_dirs, library); }});
    }
  }
  return all;
}

}  // namespace tenon::conformance
