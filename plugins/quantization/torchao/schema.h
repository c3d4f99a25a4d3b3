// quantization.torchao has this name and these codings.
#pragma once

#include <algorithm>
#include <array>
#include <memory>

#include "../published/grouped_codings.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {
class Matrix;
}

namespace tenon::torchao {

inline constexpr auto kGrouped = published::SixteenBitCodings::of_bits<4, 8>();
inline constexpr uint32_t kRows = kGrouped.size();  // after those in groups comes the one with a scale a row in f32

constexpr auto all_codings() {
  std::array<coded::Coding, kGrouped.size() + 1> all;
  std::copy(kGrouped.begin(), kGrouped.end(), all.begin());
  all[kRows] = {.bits = 8, .group = 32, .scaling = coded::Scaling::kRow};
  return all;
}

struct Schema {
  static constexpr const char* kName = "torchao";
  static constexpr const char* kDoc = "checkpoints of torchao with integers of 1 to 8 bits; activations in f32";
  static constexpr auto kParams = sdk::params();

  static constexpr auto kCodings = all_codings();
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::torchao
