// This is a device for a stand-in host, and components on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/core/params.h"
#include "tenon/core/registry.h"

namespace tenon {
class DeviceMemory;
}

namespace tenon::conformance {

// This is the device `name` of a registry, which outlives it. One thread at a time uses it.
class Device {
 public:
  // `isa` has the bits of TENON_ISA_* that components may use, of those that the device has. Throws Error if there is
  // no such device, or with the device's own reason (a machine without a GPU).
  explicit Device(Registry& registry, const std::string& name, uint64_t isa = ~uint64_t{0});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Returns the host's own memory and cores, for the process' life.
  static const Device& cpu();

  const tenon_env& env() const { return env_; }
  const tenon_device& table() const { return table_; }
  bool walks() const { return (table_.flags & TENON_DEVICE_WALKS) != 0; }
  void* queue() const { return queue_; }  // it is nullptr on a device that walks

  // These throw Error with the device's reason. copy() is done when it returns, between any spaces.
  void copy(void* dst, const void* src, uint64_t bytes) const;
  void wait() const;
  void* alloc(uint64_t bytes) const;
  void release(void* p) const;

 private:
  Instance instance_;
  tenon_device table_{};  // it is the instance's, with the isa that components may use
  tenon_host host_{};
  tenon_env env_{};
  void* queue_ = nullptr;
  std::unique_ptr<DeviceMemory> memory_;
};

// This is a parameter that is not to have its default.
using Setting = std::pair<std::string, ParamValue>;

// This is an instance with parameters by name. The registry and the device outlive it.
class Component {
 public:
  // Throws Error: no such parameter, a value that the schema refuses, or the component's own reason.
  Component(const LoadedComponent& component, const Device& device, const std::vector<Setting>& settings = {});

  void* self() const { return instance_.self(); }
  const Device& device() const { return device_; }
  const tenon_param_schema& schema() const { return *instance_.component().schema; }
  template <class Table>
  const Table& table() const {
    return instance_.table<Table>();
  }

 private:
  const Device& device_;
  Instance instance_;
};

}  // namespace tenon::conformance
