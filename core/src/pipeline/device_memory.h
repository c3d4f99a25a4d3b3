// All device memory goes through this: every byte is counted under what it is for,
// so that the plan can be held against it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tenon/abi/device.h"
#include "tenon/abi/plugin.h"

namespace tenon {

// Thread: any. The device outlives it; what is not released when it dies is released then.
class DeviceMemory {
 public:
  // The queue is the device's, for zeroing; nullptr on a device that walks.
  explicit DeviceMemory(const tenon_device& device, void* queue = nullptr) : device_(device), queue_(queue) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  const tenon_device& device() const { return device_; }
  // Allocates; nullptr for 0 bytes. Throws Error(kMemory) that says for what and how much.
  void* alloc(uint32_t space, uint64_t bytes, const std::string& purpose);
  void* alloc_zeroed(uint32_t space, uint64_t bytes, const std::string& purpose);
  void release(void* p);

  // Returns how much device memory is used; the host's memory is not counted.
  uint64_t used() const;
  uint64_t high_water() const;

 private:
  struct Block {
    uint64_t bytes;
    uint32_t space;
  };
  const tenon_device& device_;
  void* queue_;
  mutable std::mutex mutex_;
  std::map<void*, Block> blocks_;
  uint64_t used_ = 0, high_water_ = 0;
};

}  // namespace tenon
