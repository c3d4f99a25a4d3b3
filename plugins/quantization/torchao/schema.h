// quantization.torchao has this name and these codings.
#pragma once

#include <algorithm>
#include <array>

#include "../published/grouped_codings.h"
#include "../published/integer_schema.h"
#include "../published/paired_codings.h"

namespace tenon::torchao {

inline constexpr auto kGrouped = published::SixteenBitCodings::of_bits<4, 8>();
inline constexpr auto kPaired = published::paired_codings<4>();
// After the codings in groups with zero points comes the one with a scale a row in f32, then those with offsets.
inline constexpr uint32_t kRows = kGrouped.size();

constexpr auto all_codings() {
  std::array<coded::Coding, kGrouped.size() + 1 + kPaired.size()> all;
  std::copy(kGrouped.begin(), kGrouped.end(), all.begin());
  all[kRows] = {.bits = 8, .group = 32, .scaling = coded::Scaling::kRow};
  std::copy(kPaired.begin(), kPaired.end(), all.begin() + kRows + 1);
  return all;
}
inline constexpr auto kAll = all_codings();

struct Schema : published::IntegerSchema<kAll> {
  static constexpr const char* kName = "torchao";
  static constexpr const char* kDoc = "checkpoints of torchao with integers of 1 to 8 bits; activations in f32";
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::torchao
