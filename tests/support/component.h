// Opens a component of the build for a test, with parameters by name and a device of the test's choice.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "tenon/abi/plugin.h"

namespace tenon::test {

using Setting = std::pair<std::string_view, std::variant<int64_t, double, std::string>>;

// TENON_ISA_* bits of the machine that the test runs on.
uint64_t machine_isa();

class Component {
 public:
  // device "cpu"; isa: what the component may use. Throws std::runtime_error: no such library or parameter, or the
  // component's own reason.
  Component(const std::string& kind, const std::string& name, std::initializer_list<Setting> settings = {},
            uint64_t isa = machine_isa());
  ~Component();
  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;

  void* self() const { return self_; }
  const tenon_param_schema& schema() const { return *component_->schema; }
  template <class Table>
  const Table& table() const {
    return *static_cast<const Table*>(table_);
  }

 private:
  tenon_host host_{};
  tenon_device device_{};
  tenon_env env_{};
  const tenon_component* component_ = nullptr;
  void* self_ = nullptr;
  const void* table_ = nullptr;
};

}  // namespace tenon::test
