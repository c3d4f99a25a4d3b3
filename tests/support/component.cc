#include "support/component.h"

#include <map>

#include "cpu/cpu_device.h"
#include "tenon/core/error.h"

namespace tenon::test {
namespace {

const conformance::Device& cpu(uint64_t isa) {
  static Registry& registry = plugins();
  static std::map<uint64_t, conformance::Device> devices;
  return devices.try_emplace(isa, registry, "cpu", isa).first->second;
}

}  // namespace

Registry& plugins() {
  static Registry all;
  [[maybe_unused]] static const bool opened = [] {
    register_cpu_device(all);
    all.add_root(TENON_TEST_PLUGINS);
    return true;
  }();
  return all;
}

const conformance::Device* device(const std::string& name) {
  Registry& all = plugins();  // It is made before the devices, so that it outlives them.
  static std::map<std::string, std::unique_ptr<conformance::Device>> devices;
  const auto [it, inserted] = devices.try_emplace(name);
  if (inserted) {
    try {
      it->second = std::make_unique<conformance::Device>(all, name);
    } catch (const Error&) {
    }
  }
  return it->second.get();
}

uint64_t machine_isa() {
  return tenon::machine_isa();
}

std::vector<std::string> installed(const std::string& kind) {
  return plugins().names(kind, "cpu");
}

std::vector<std::string> choices(const std::string& kind, const std::string& name, const std::string& parameter) {
  const tenon_param_schema& schema = *plugins().load(kind, name, "cpu").schema;
  const size_t i = find_param(schema, parameter);
  return i == schema.count ? std::vector<std::string>{} : choices_of(spec_at(schema, i));
}

Component::Component(const std::string& kind, const std::string& name, const std::vector<Setting>& settings,
                     uint64_t isa)
    : Component(plugins().load(kind, name, "cpu"), settings, isa) {}

Component::Component(const LoadedComponent& component, const std::vector<Setting>& settings, uint64_t isa)
    : conformance::Component(component, cpu(isa), settings) {}

}  // namespace tenon::test
