// Every component of a kind owes these, which are checks by name. They need nothing but the component: `tenon plugin
// check` runs them on a library, the tests on everything that ships.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/device.h"
#include "conformance/op_runner.h"
#include "tenon/core/plugin_check.h"

namespace tenon::conformance {

// Throws Error(kPlugin).
[[noreturn]] void fail(const std::string& why);
inline void require(bool holds, const std::string& otherwise) {
  if (!holds) fail(otherwise);
}

inline constexpr const char* kBounds = "bounds";

// This is room for a component's reason.
struct Reason {
  char text[512] = "";
  tenon_reason raw{text, sizeof(text)};
  // Throws Error unless the status is OK.
  void check(tenon_status status, const std::string& otherwise) const {
    if (status != TENON_OK) fail(otherwise + ": " + text);
  }
};

// This is a component's settings for a check: one after another, all that its parameters let a user choose from.
struct Variant {
  std::string label;  // "fp16_avx2"
  std::vector<Setting> settings;
  uint64_t isa = ~uint64_t{0};  // TENON_ISA_* that it may use
};
// Returns the defaults, and every other choice of every parameter that has a list of them; on a device that walks,
// these with vector instructions of two widths and with none.
std::vector<Variant> variants_of(const LoadedComponent& component);

// This is a component in a variant, with a device of its own. The registry outlives it.
class Subject {
 public:
  // Throws NotTested where the component's device cannot be had.
  Subject(Registry& registry, const LoadedComponent& component, const Variant& variant);

  const LoadedComponent& loaded() const { return component_; }
  const Device& device() const { return *device_; }
  // Says whether it declares a TENON_OWN_* rule.
  bool has_own(uint32_t rule) const;
  const Variant& variant() const { return variant_; }
  // Returns a new instance; with other settings instead of the variant's.
  std::unique_ptr<Component> open() const { return open(variant_.settings); }
  std::unique_ptr<Component> open(const std::vector<Setting>& settings) const;
  // Returns the variant's value of a parameter, or its default; "" if the component has no such text.
  std::string text(const std::string& parameter) const;

 private:
  const LoadedComponent& component_;
  Variant variant_;
  std::unique_ptr<Device> device_;
};

// Returns, or throws what is wrong, or NotTested.
struct Check {
  const char* name;
  void (*run)(const Subject& subject);
};
// Returns the checks of a kind; they are empty if nothing is known that every component of it owes. If the first is
// "bounds", whether ops keep to what they declare, then none of the others means anything without it.
const std::vector<Check>& checks_of(std::string_view kind);

// Returns all checks for `tenon plugin check`, each over all variants of the library's component. Devices are looked
// for in plugin_dirs.
std::vector<KindCheck> kind_checks(std::vector<std::filesystem::path> plugin_dirs);

}  // namespace tenon::conformance
