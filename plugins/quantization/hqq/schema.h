// quantization.hqq has this name and these codings.
#pragma once

#include <array>
#include <memory>

#include "../coded/quantize.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {
class Matrix;
}

namespace tenon::hqq {

inline constexpr uint32_t kHeldBits[] = {2, 3, 4, 8}, kHeldGroups[] = {64, 32};

// By bits, then by group.
constexpr auto all_codings() {
  std::array<coded::Coding, std::size(kHeldBits) * std::size(kHeldGroups)> all;
  size_t i = 0;
  for (const uint32_t bits : kHeldBits) {
    for (const uint32_t group : kHeldGroups) {
      all[i++] = {.bits = bits, .group = group, .scaling = coded::Scaling::kOffset};
    }
  }
  return all;
}

struct Schema {
  static constexpr const char* kName = "hqq";
  static constexpr const char* kDoc = "checkpoints of HQQ with 1, 2, 3, 4 or 8 bits in groups; activations in f32";
  static constexpr auto kParams = sdk::params();

  static constexpr auto kCodings = all_codings();
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::hqq
