// These codings hold integers in groups with a scale and a zero point, as published checkpoints have them, with scales
// in the file's own format. A group of the file is as many groups of a coding as it takes, each with the same scale:
// most files have 128, and any multiple of 32 is held in groups of 32.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "../coded/quantize.h"

namespace tenon::published {

inline constexpr uint32_t kHeldGroups[] = {128, 32};

// Codings are in the order of bits, then of groups, then of the scales' formats.
template <coded::Scaling... kScalings>
struct GroupedCodings {
  template <uint32_t... kBits>
  static constexpr auto of_bits() {
    std::array<coded::Coding, sizeof...(kBits) * std::size(kHeldGroups) * sizeof...(kScalings)> all;
    size_t i = 0;
    for (const uint32_t bits : {kBits...}) {
      for (const uint32_t group : kHeldGroups) {
        for (const coded::Scaling scaling : {kScalings...}) {
          all[i++] = {.bits = bits, .group = group, .scaling = scaling};
        }
      }
    }
    return all;
  }
};
using HalfCodings = GroupedCodings<coded::Scaling::kHalfZeroPoint>;
using SixteenBitCodings = GroupedCodings<coded::Scaling::kHalfZeroPoint, coded::Scaling::kZeroPoint>;

}  // namespace tenon::published
