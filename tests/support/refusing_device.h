// This device refuses an allocation on demand, counts what it hands out, and is otherwise the one that it stands for.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tenon/core/registry.h"

namespace tenon::test {

// There is one at a time. The registry and every pipeline on the device die before it.
class RefusingDevice {
 public:
  static constexpr const char* kName = "refusing";

  // Adds device "refusing" to the registry, which stands for its device `name`, parameters included.
  RefusingDevice(Registry& registry, const std::string& name);
  ~RefusingDevice();
  RefusingDevice(const RefusingDevice&) = delete;
  RefusingDevice& operator=(const RefusingDevice&) = delete;

  // The n-th allocation from now on is refused; 0: none.
  void refuse(uint64_t n);
  // Sets what devices that are created from now on state as their memory; 0: what they have.
  void pretend_memory(uint64_t bytes) { memory_ = bytes; }
  uint64_t allocations() const { return calls_; }  // they count since refuse()
  uint64_t live_bytes() const;                     // they are in all spaces
  uint64_t strays() const { return strays_; }      // these released what was not there, or of another size

 private:
  struct Instance;
  static RefusingDevice* active_;

  const LoadedComponent& device_;
  tenon_component component_;
  uint64_t calls_ = 0, refuse_ = 0, strays_ = 0, memory_ = 0;
  std::map<void*, uint64_t> live_;
};

}  // namespace tenon::test
