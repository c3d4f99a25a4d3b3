// This arithmetic does not break on absurd values of a damaged trace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace tenon::view {

// Stops at the greatest int64. `ns` >= 0.
inline void add_to(int64_t& sum, int64_t ns) {
  if (__builtin_add_overflow(sum, ns, &sum)) sum = std::numeric_limits<int64_t>::max();
}

// Converts a count, which is 0 to 10^15.
inline int64_t count_of(double value) {
  return static_cast<int64_t>(std::clamp(value, 0.0, 1e15));
}

}  // namespace tenon::view
