#include "tenon/core/memory_plan.h"

#include <algorithm>
#include <cstdio>

namespace tenon {

uint64_t MemoryPlan::resident() const {
  uint64_t sum = 0;
  for (size_t k = 0; k < kMemoryKinds; ++k) {
    if (k != static_cast<size_t>(MemoryKind::kMapped) && k != static_cast<size_t>(MemoryKind::kPinned)) sum += bytes[k];
  }
  return sum;
}

uint64_t MemoryPlan::peak() const {
  return std::max(resident(), of(MemoryKind::kWeights) + of(MemoryKind::kTables) + load_scratch);
}

std::string MemoryPlan::problem(const std::string& device) const {
  if (needed() <= device_memory) return "";
  return "the pipeline needs " + format_bytes(needed()) + " and device " + device + " has " +
         format_bytes(device_memory) + (limit.empty() ? "" : " (the limit that " + limit + " states)");
}

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof(text), "%.*f %s", decimals, value, kUnits[unit]);
  return text;
}

std::string to_string(const MemoryPlan& plan) {
  std::string text;
  const auto line = [&](const std::string& name, uint64_t bytes) {
    char row[96];
    std::snprintf(row, sizeof(row), "%-22s %15llu  %10s\n", name.c_str(), static_cast<unsigned long long>(bytes),
                  format_bytes(bytes).c_str());
    text += row;
  };
  for (size_t k = 0; k < kMemoryKinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    if (kind != MemoryKind::kPinned || plan.of(kind) > 0) line(to_string(kind), plan.of(kind));
  }
  line("load scratch", plan.load_scratch);
  line("peak allocated", plan.peak());
  if (plan.session_copy > 0) line("copy of a session", plan.session_copy);
  line("device memory", plan.device_memory);
  if (!plan.limit.empty()) text += "limited by             " + plan.limit + "\n";
  return text;
}

}  // namespace tenon
