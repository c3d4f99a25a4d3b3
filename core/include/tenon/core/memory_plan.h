// This says what a pipeline will allocate on its device. It is known before any weight is read.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/core/program.h"

namespace tenon {

struct MemoryPlan {
  std::array<uint64_t, kMemoryKinds> bytes{};  // by MemoryKind; kMapped is used in place and not allocated
  uint64_t load_scratch = 0;                   // bytes while weights are converted; they go before the cache is made
  uint64_t session_copy = 0;   // the host copies the cells of the longest sequence that may be saved, at its end
  uint64_t device_memory = 0;  // the machine has so much, or a control group leaves so much of it
  std::string limit;           // the file that states device_memory; "" if it is the machine's

  uint64_t of(MemoryKind kind) const { return bytes[static_cast<size_t>(kind)]; }
  // This much is allocated for as long as the pipeline lives.
  uint64_t resident() const;
  // This is the allocator's high-water mark: the larger of what loading and what running needs.
  uint64_t peak() const;
  // This much has to fit, with what the host copies.
  uint64_t needed() const { return std::max(peak(), resident() + session_copy); }
  // Says why the plan does not fit, or "": what it needs, what there is, and which file says so. `device` is its kind.
  std::string problem(const std::string& device) const;
};

// Returns three digits and a decimal unit: "1.24 GB".
std::string format_bytes(uint64_t bytes);
// Returns the plan as a table for people, one line a kind.
std::string to_string(const MemoryPlan& plan);

}  // namespace tenon
