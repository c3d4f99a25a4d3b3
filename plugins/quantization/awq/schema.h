// quantization.awq has this name, these codings and this packing.
#pragma once

#include <memory>

#include "../published/grouped_codings.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {
class Matrix;
}

namespace tenon::awq {

inline constexpr uint32_t kRowsAWord = 8, kBits = 4;

// Rows 0, 2, 4 and 6 of a word come first, then the odd ones.
constexpr uint32_t shift_of(uint64_t row) {
  const auto in_word = static_cast<uint32_t>(row % kRowsAWord);
  return kBits * (in_word / 2 + (in_word % 2) * 4);
}

struct Schema {
  static constexpr const char* kName = "awq";
  static constexpr const char* kDoc = "checkpoints in AWQ's form: 4 bits in groups; activations in f32";
  // They say what is written; what is read says itself how it is stored.
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "group_size",
                    .doc = "written: weights of a row that share a scale and a zero point; -1: the whole row",
                    .value = 128,
                    .choices = "-1|32|64|128",
                    .unit = "weights"}),
      sdk::boolean({.name = "scale",
                    .doc = "written: columns that meet large inputs are scaled up, and what is before them down",
                    .value = true}),
      sdk::boolean(
          {.name = "clip", .doc = "written: a group's range is cut where that leaves less error", .value = true}));

  static constexpr auto kCodings = published::HalfCodings::of_bits<4>();
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::awq
