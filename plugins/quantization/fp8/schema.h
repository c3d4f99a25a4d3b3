// quantization.fp8 has this name and this coding on every device.
#pragma once

#include "../coded/quantize.h"
#include "tenon/sdk/params.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::fp8 {

struct Schema {
  static constexpr const char* kName = "fp8";
  static constexpr const char* kDoc = "8-bit floats (e4m3), one scale an output row; activations in f32 or e4m3";
  // `scales` says what is written; what is read says itself how it is stored.
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "scales",
                 .doc = "written: what has a scale: a row, a block of 128 x 128 weights, or the matrix (tensor)",
                 .value = "row",
                 .choices = "row|block|tensor"}),
      sdk::text(
          {.name = "activations",
           .doc = "x of a product: f32: as it is; token: rounded to e4m3 by a scale a row; block: by a scale for each "
                  "128 columns of a row; static: by the scale that the file has of it, or is written with; auto: what "
                  "config.json says of matrices in e4m3, else f32",
           .value = "auto",
           .choices = "auto|f32|token|block|static"}));

  static constexpr coded::Coding kCodings[] = {
      {.bits = 8, .group = 32, .scaling = coded::Scaling::kRow, .weight_format = TENON_F8E4M3}};
  template <uint32_t>
  using Codes = coded::BookCodes<sdk::SmallFloat<4, 3>>;
  static uint32_t choose(const sdk::Params&) { return 0; }
};

}  // namespace tenon::fp8
