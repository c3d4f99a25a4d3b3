// quantization.uintx has this name, these parameters and these codings on every device.
#pragma once

#include <array>

#include "../coded/quantize.h"
#include "tenon/sdk/params.h"

namespace tenon::uintx {

inline constexpr uint32_t kGroups[] = {32, 64, 128, 256};
inline constexpr uint32_t kMostBits = 8;

// Codings are in the order of bits, then of groups.
constexpr auto all_codings() {
  std::array<coded::Coding, kMostBits * std::size(kGroups)> all;
  size_t i = 0;
  for (uint32_t bits = 1; bits <= kMostBits; ++bits) {
    for (const uint32_t group : kGroups) {
      all[i++] = {.bits = bits, .group = group, .scaling = coded::Scaling::kZeroPoint};
    }
  }
  return all;
}

struct Schema {
  static constexpr const char* kName = "uintx";
  static constexpr const char* kDoc = "integers of 1 to 8 bits in groups with scale and zero point; activations in f32";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "bits", .doc = "bits of a weight", .value = 4, .min = 1, .max = kMostBits, .unit = "bits"}),
      sdk::integer({.name = "group_size",
                    .doc = "weights of a row that share a scale and a zero point",
                    .value = 64,
                    .min = 32,
                    .max = 256,
                    .choices = "32|64|128|256",
                    .unit = "weights"}));

  static constexpr auto kCodings = all_codings();
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
  static uint32_t choose(const sdk::Params& params) {
    uint32_t index = static_cast<uint32_t>(params.integer("bits") - 1) * std::size(kGroups);
    while (kCodings[index].group != params.integer("group_size")) ++index;
    return index;
  }
};

}  // namespace tenon::uintx
