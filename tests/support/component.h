// Opens components of the build for a test, with parameters by name and a device of the test's choice.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tenon/abi/plugin.h"
#include "tenon/core/registry.h"

namespace tenon::test {

using Setting = std::pair<std::string_view, std::variant<int64_t, double, std::string>>;

// TENON_ISA_* bits of the machine that the test runs on.
uint64_t machine_isa();

// The CPU components of a kind among the build's plugins, sorted by name.
std::vector<std::string> installed(const std::string& kind);

// What a parameter of a component may be set to: "fp32", "fp16"; empty if there is no such parameter or no list.
std::vector<std::string> choices(const std::string& kind, const std::string& name, const std::string& parameter);

class Component {
 public:
  // isa: what the component may use. Throws tenon::Error: no such component or parameter, a value that the schema
  // refuses, or the component's own reason.
  Component(const std::string& kind, const std::string& name, std::initializer_list<Setting> settings = {},
            uint64_t isa = machine_isa());
  // One from elsewhere, opened by a registry that outlives it.
  Component(const LoadedComponent& component, std::initializer_list<Setting> settings, uint64_t isa);
  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;

  void* self() const { return instance_.self(); }
  const tenon_param_schema& schema() const { return *instance_.component().schema; }
  template <class Table>
  const Table& table() const {
    return instance_.table<Table>();
  }

 private:
  tenon_host host_{};
  tenon_device device_{};
  tenon_env env_{};
  Instance instance_;
};

}  // namespace tenon::test
