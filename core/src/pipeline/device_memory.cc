#include "device_memory.h"

#include <algorithm>
#include <cstring>

#include "tenon/core/error.h"
#include "tenon/core/memory_plan.h"

namespace tenon {

DeviceMemory::~DeviceMemory() {
  if (queue_ != nullptr) device_.wait(device_.self, queue_, nullptr);  // steps that are under way may use it
  for (const auto& [p, block] : blocks_) device_.release(device_.self, block.space, p, block.bytes);
}

void* DeviceMemory::alloc(uint32_t space, uint64_t bytes, const std::string& purpose) {
  if (bytes == 0) return nullptr;
  void* p = nullptr;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device_.alloc(device_.self, space, bytes, &p, &why) != TENON_OK) {
    throw Error(ErrorCode::kMemory, std::string("device.") + device_.kind + " has no " + format_bytes(bytes) +
                                        (space == TENON_SPACE_HOST ? " of host memory" : "") + " for " + purpose +
                                        ": " + text);
  }
  const std::lock_guard lock(mutex_);
  try {
    blocks_[p] = {bytes, space};
  } catch (...) {
    device_.release(device_.self, space, p, bytes);
    throw;
  }
  if (space == TENON_SPACE_DEVICE) used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return p;
}

void DeviceMemory::release(void* p) {
  if (p == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(p);
  if (it == blocks_.end()) return;
  device_.release(device_.self, it->second.space, p, it->second.bytes);
  if (it->second.space == TENON_SPACE_DEVICE) used_ -= it->second.bytes;
  blocks_.erase(it);
}

void* DeviceMemory::alloc_zeroed(uint32_t space, uint64_t bytes, const std::string& purpose) {
  void* p = alloc(space, bytes, purpose);
  if (p == nullptr || (device_.flags & TENON_DEVICE_ZEROES) != 0) return p;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (space == TENON_SPACE_HOST) {
    std::memset(p, 0, bytes);
  } else if (device_.copy(device_.self, queue_, p, nullptr, bytes, &why) != TENON_OK) {
    throw Error(ErrorCode::kPlugin, std::string("device.") + device_.kind + ": zeroing " + purpose + ": " + text);
  }
  return p;
}

uint64_t DeviceMemory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

uint64_t DeviceMemory::high_water() const {
  const std::lock_guard lock(mutex_);
  return high_water_;
}

}  // namespace tenon
