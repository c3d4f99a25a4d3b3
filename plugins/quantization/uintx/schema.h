// quantization.uintx has this name, these parameters and these codings on every device.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "../coded/quantize.h"
#include "tenon/sdk/params.h"
#include "tenon/sdk/stored.h"

namespace tenon::uintx {

inline constexpr uint32_t kGroups[] = {32, 64, 128, 256};
inline constexpr uint32_t kMostBits = 8, kLeastGroup = 8, kMostGroup = 4096;

// Codings are in the order of bits, then of groups. Those of eights follow, by bits.
constexpr auto all_codings() {
  std::array<coded::Coding, kMostBits*(std::size(kGroups) + 1)> all;
  size_t i = 0;
  for (uint32_t bits = 1; bits <= kMostBits; ++bits) {
    for (const uint32_t group : kGroups) {
      all[i++] = {.bits = bits, .group = group, .scaling = coded::Scaling::kZeroPoint};
    }
  }
  for (uint32_t bits = 1; bits <= kMostBits; ++bits) {
    all[i++] = {.bits = bits, .group = sdk::kUnitCodes, .scaling = coded::Scaling::kEights};
  }
  return all;
}

// A group is held as groups of the largest size that divides it, or as eights.
constexpr uint32_t index_of(uint32_t bits, uint32_t group) {
  uint32_t size = std::size(kGroups);
  while (size > 0 && group % kGroups[size - 1] != 0) --size;
  return size == 0 ? kMostBits * std::size(kGroups) + bits - 1 : (bits - 1) * std::size(kGroups) + size - 1;
}
constexpr bool is_group(int64_t group) {
  return group >= kLeastGroup && group <= kMostGroup && group % kLeastGroup == 0;
}

// The sizes of groups are the multiples of 8, "8|16|24|...|4096", and zeros.
constexpr auto group_sizes() {
  std::array<char, kMostGroup / kLeastGroup * 5> text{};
  size_t n = 0;
  for (uint32_t group = kLeastGroup; group <= kMostGroup; group += kLeastGroup) {
    if (n != 0) text[n++] = '|';
    for (uint32_t digit = 1000; digit > 0; digit /= 10) {
      if (group >= digit) text[n++] = static_cast<char>('0' + group / digit % 10);
    }
  }
  return text;
}
inline constexpr auto kGroupSizes = group_sizes();

struct Schema {
  static constexpr const char* kName = "uintx";
  static constexpr const char* kDoc = "integers of 1 to 8 bits in groups with scale and zero point; activations in f32";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "bits", .doc = "bits of a weight", .value = 4, .min = 1, .max = kMostBits, .unit = "bits"}),
      sdk::integer({.name = "group_size",
                    .doc = "weights of a row that share a scale and a zero point",
                    .value = 64,
                    .min = kLeastGroup,
                    .max = kMostGroup,
                    .choices = kGroupSizes.data(),
                    .unit = "weights"}));

  static constexpr auto kCodings = all_codings();
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
  static uint32_t choose(const sdk::Params& params) {
    return index_of(static_cast<uint32_t>(params.integer("bits")), group(params));
  }
  static uint32_t group(const sdk::Params& params) { return static_cast<uint32_t>(params.integer("group_size")); }
  // A row that is no longer than its group is one group of whole units, but where a coding has groups of that size.
  static coded::Holding fitted(const coded::Holding& chosen, uint32_t k) {
    if (k > chosen.group || std::ranges::find(kGroups, chosen.group) != std::end(kGroups)) return chosen;
    const uint32_t whole = (k + sdk::kUnitCodes - 1) / sdk::kUnitCodes * sdk::kUnitCodes;
    return {index_of(kCodings[chosen.index].bits, whole), whole};
  }
  static std::optional<coded::Holding> guess(const tenon_matrix& m) {
    const tenon_stored *codes = sdk::find_tensor(m, "weight"), *scales = sdk::find_tensor(m, "weight_scale");
    if (codes == nullptr || scales == nullptr) return {};
    if (codes->rank != 3 || scales->rank != 2 || scales->dim[1] < 1) return {};
    const int64_t bits = codes->dim[2] / sdk::unit_bytes(1), group = codes->dim[1] * sdk::kUnitCodes / scales->dim[1];
    if (bits < 1 || bits > kMostBits || !is_group(group)) return {};
    return {{index_of(static_cast<uint32_t>(bits), static_cast<uint32_t>(group)), static_cast<uint32_t>(group)}};
  }
};

}  // namespace tenon::uintx
