// quantization.fp8 has this name and this coding on every device.
#pragma once

#include "../coded/quantize.h"
#include "tenon/sdk/params.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::fp8 {

struct Schema {
  static constexpr const char* kName = "fp8";
  static constexpr const char* kDoc = "8-bit floats (e4m3), one scale an output row; activations in f32";
  static constexpr auto kParams = sdk::params();

  static constexpr coded::Coding kCodings[] = {
      {.bits = 8, .group = 32, .scaling = coded::Scaling::kRow, .weight_format = TENON_F8E4M3}};
  template <uint32_t>
  using Codes = coded::BookCodes<sdk::SmallFloat<4, 3>>;
  static uint32_t choose(const sdk::Params&) { return 0; }
};

}  // namespace tenon::fp8
