// This is memory of a device between two red zones, with a copy of what was last seen there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/device.h"

namespace tenon::conformance {

// Memory that nobody has written holds this: NaN in every floating-point format.
inline constexpr uint8_t kPoison = 0xff;

// The device outlives it.
class GuardedMemory {
 public:
  // It has `capacity` bytes, all of them zero and in use.
  GuardedMemory(const Device& device, uint64_t capacity, std::string name);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  uint8_t* data() const { return memory_ + kZone; }  // it is in the device's memory
  uint64_t bytes() const { return bytes_; }          // so many are in use
  const std::string& name() const { return name_; }

  // From now on so many bytes are in use, at most the capacity; what follows them belongs to the red zone.
  void lay(uint64_t bytes, uint8_t fill);
  void fill(uint8_t byte) { lay(bytes_, byte); }
  void write(const void* from, uint64_t offset, uint64_t bytes);

  // Returns what is there now; it is valid until the memory is looked at again.
  const uint8_t* look();
  // Looks, and keeps that as what was seen.
  const std::vector<uint8_t>& remember();
  const std::vector<uint8_t>& seen() const { return seen_; }
  // Says which side was written, as of the last look; "" if none was.
  std::string damage() const;

  // Under AddressSanitizer, where memory is the host's, close() forbids access to the red zones, and open() allows it.
  void close() const;
  void open() const;

 private:
  static constexpr uint64_t kZone = 512;
  static constexpr uint8_t kZoneByte = 0xa5;

  const Device& device_;
  uint64_t capacity_, bytes_;
  std::string name_;
  uint8_t* memory_;
  std::vector<uint8_t> mirror_;  // it is a copy of the memory with its zones, where the host cannot read it
  std::vector<uint8_t> seen_;
};

}  // namespace tenon::conformance
