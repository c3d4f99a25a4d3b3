#include "support/component.h"

#include <cstdlib>

#include "cpu/cpu_device.h"
#include "tenon/core/error.h"
#include "tenon/core/params.h"
#include "tenon/core/plugin_check.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

// The build's plugins; or the one that `tenon plugin check` is about.
void add_plugins(Registry& registry) {
  if (const char* library = std::getenv("TENON_CONFORMANCE_LIBRARY")) {
    registry.add_library(library);
  } else {
    registry.add_root(TENON_TEST_PLUGINS);
  }
}

Registry& registry() {
  static Registry plugins;
  [[maybe_unused]] static const bool opened = (add_plugins(plugins), true);
  return plugins;
}

}  // namespace

uint64_t machine_isa() {
  return tenon::machine_isa();
}

std::vector<std::string> installed(const std::string& kind) {
  return registry().names(kind, "cpu");
}

std::vector<std::string> choices(const std::string& kind, const std::string& name, const std::string& parameter) {
  const tenon_param_schema& schema = *registry().load(kind, name, "cpu").schema;
  const size_t i = find_param(schema, parameter);
  return i == schema.count ? std::vector<std::string>{} : choices_of(spec_at(schema, i));
}

Component::Component(const std::string& kind, const std::string& name, std::initializer_list<Setting> settings,
                     uint64_t isa)
    : Component(registry().load(kind, name, "cpu"), settings, isa) {}

Component::Component(const LoadedComponent& component, std::initializer_list<Setting> settings, uint64_t isa)
    : host_(sdk::abi_struct<tenon_host>()),
      device_(sdk::abi_struct<tenon_device>()),
      env_(sdk::abi_struct<tenon_env>()) {
  ParamValues params = example_values(*component.schema);
  for (const auto& [key, value] : settings) {
    const size_t i = find_param(*component.schema, std::string(key));
    if (i == component.schema->count) throw Error(ErrorCode::kConfig, "no parameter " + std::string(key));
    const std::string problem = params.set(i, std::visit([](const auto& v) { return ParamValue(v); }, value));
    if (!problem.empty()) throw Error(ErrorCode::kConfig, std::string(key) + ": " + problem);
  }
  host_.log = [](void*, uint32_t, const char*) {};
  device_.kind = "cpu", device_.name = "test", device_.units = 1, device_.flags = TENON_DEVICE_WALKS;
  device_.isa = isa;
  env_.host = &host_, env_.device = &device_;
  instance_ = Instance(component, *params.abi(), env_);
}

}  // namespace tenon::test
