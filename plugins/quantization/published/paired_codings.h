// These codings hold integers in groups with a scale and an offset in f32. A group of the file is as many groups of a
// coding as it takes, each with the same pair.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "../coded/quantize.h"

namespace tenon::published {

inline constexpr uint32_t kPairedGroups[] = {64, 32};

// Codings are in the order of bits, then of groups.
template <uint32_t... kBits>
constexpr auto paired_codings() {
  std::array<coded::Coding, sizeof...(kBits) * std::size(kPairedGroups)> all;
  size_t i = 0;
  for (const uint32_t bits : {kBits...}) {
    for (const uint32_t group : kPairedGroups) {
      all[i++] = {.bits = bits, .group = group, .scaling = coded::Scaling::kOffset};
    }
  }
  return all;
}

}  // namespace tenon::published
