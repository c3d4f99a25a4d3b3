// A quad of packed rows may keep these columns, by number.
#pragma once

#include <cstdint>

#include "definition.h"

namespace tenon::sparse24 {

inline constexpr Kept kPairs[] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
inline constexpr uint32_t kPairCount = 6;

// `columns` are as Quad has them, in order, or 0 where a matrix lacks a row.
constexpr uint32_t pair_of(uint32_t columns) {
  for (uint32_t i = 0; i < kPairCount; ++i) {
    if (columns == (kPairs[i].first | kPairs[i].second << 2)) return i;
  }
  return 0;
}

}  // namespace tenon::sparse24
