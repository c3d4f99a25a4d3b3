// Opens components of the build for a test, with parameters by name and instructions of the test's choice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "conformance/device.h"

namespace tenon::test {

using conformance::Setting;

// Returns the registry of the build's plugins and the CPU.
Registry& plugins();

// Returns a device of the plugins by name; nullptr where this machine has none.
const conformance::Device* device(const std::string& name);

// Returns the TENON_ISA_* bits of the machine that the test runs on.
uint64_t machine_isa();

// Returns the CPU components of a kind among the build's plugins, sorted by name.
std::vector<std::string> installed(const std::string& kind);

// Returns what a parameter of a component may be set to: "fp32", "fp16"; empty if there is no such parameter or no
// list.
std::vector<std::string> choices(const std::string& kind, const std::string& name, const std::string& parameter);

class Component : public conformance::Component {
 public:
  // `isa` says what the component may use. Throws tenon::Error if there is no such component or parameter, if the
  // schema refuses a value, or with the component's own reason.
  Component(const std::string& kind, const std::string& name, const std::vector<Setting>& settings = {},
            uint64_t isa = machine_isa());
  // Takes a component from elsewhere, opened by a registry that outlives it.
  Component(const LoadedComponent& component, const std::vector<Setting>& settings, uint64_t isa);
};

}  // namespace tenon::test
