#include "conformance/guarded_memory.h"

#include <algorithm>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define TENON_POISON(p, n) __asan_poison_memory_region(p, n)
#define TENON_UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define TENON_POISON(p, n) static_cast<void>(0)
#define TENON_UNPOISON(p, n) static_cast<void>(0)
#endif

namespace tenon::conformance {

GuardedMemory::GuardedMemory(const Device& device, uint64_t capacity, std::string name)
    : device_(device),
      capacity_(capacity),
      bytes_(capacity),
      name_(std::move(name)),
      memory_(static_cast<uint8_t*>(device.alloc(capacity + 2 * kZone))) {
  fill(0);
}

GuardedMemory::~GuardedMemory() {
  open();
  device_.release(memory_);
}

void GuardedMemory::lay(uint64_t bytes, uint8_t byte) {
  bytes_ = bytes;
  const auto set = [&](uint64_t offset, uint64_t n, uint8_t value) {
    if (n == 0) return;
    if (device_.walks()) {
      std::memset(memory_ + offset, value, n);
    } else if (value == 0) {
      device_.copy(memory_ + offset, nullptr, n);
    } else {
      const std::vector<uint8_t> all(n, value);
      device_.copy(memory_ + offset, all.data(), n);
    }
  };
  set(0, kZone, kZoneByte);
  set(kZone, bytes, byte);
  set(kZone + bytes, capacity_ - bytes + kZone, kZoneByte);
}

void GuardedMemory::write(const void* from, uint64_t offset, uint64_t bytes) {
  device_.copy(data() + offset, from, bytes);
}

const uint8_t* GuardedMemory::look() {
  if (device_.walks()) return data();
  mirror_.resize(capacity_ + 2 * kZone);
  device_.copy(mirror_.data(), memory_, mirror_.size());
  return mirror_.data() + kZone;
}

const std::vector<uint8_t>& GuardedMemory::remember() {
  const uint8_t* now = look();
  seen_.assign(now, now + bytes_);
  return seen_;
}

std::string GuardedMemory::damage() const {
  const uint8_t* all = device_.walks() ? memory_ : mirror_.data();
  const auto dirty = [](const uint8_t* p, uint64_t n) {
    return std::any_of(p, p + n, [](uint8_t b) { return b != kZoneByte; });
  };
  if (dirty(all, kZone)) return "wrote before the start of " + name_;
  if (dirty(all + kZone + bytes_, capacity_ - bytes_ + kZone)) return "wrote past the end of " + name_;
  return {};
}

void GuardedMemory::close() const {
  if (!device_.walks()) return;
  TENON_POISON(memory_, kZone);
  TENON_POISON(data() + bytes_, capacity_ - bytes_ + kZone);
}

void GuardedMemory::open() const {
  if (device_.walks()) TENON_UNPOISON(memory_, capacity_ + 2 * kZone);
}

}  // namespace tenon::conformance
