// quantization.nf4 has this name, these parameters and these codings on every device.
#pragma once

#include "../coded/books.h"
#include "../coded/quantize.h"
#include "tenon/sdk/params.h"

namespace tenon::nf4 {

struct Schema {
  static constexpr const char* kName = "nf4";
  static constexpr const char* kDoc = "4-bit NormalFloat in blocks of 64 with a scale each; activations in f32";
  static constexpr auto kParams = sdk::params(sdk::boolean(
      {.name = "double_quantization",
       .doc = "hold the blocks' scales in 8 bits, as multiples of one f32 a row: 4.13 bits a weight instead of 4.5"}));

  // The name of the codes' tensor says what they stand for, since nothing else of the tensors does.
  static constexpr coded::Coding kCodings[] = {
      {.bits = 4, .group = 64, .scaling = coded::Scaling::kGroup, .weight = "weight_nf4"},
      {.bits = 4, .group = 64, .scaling = coded::Scaling::kTwoLevel, .weight = "weight_nf4"}};
  template <uint32_t>
  using Codes = coded::BookCodes<coded::NormalFloat4>;
  static uint32_t choose(const sdk::Params& params) { return params.boolean("double_quantization") ? 1 : 0; }
};

}  // namespace tenon::nf4
