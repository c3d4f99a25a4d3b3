// quantization.fp6 has this name, these parameters and these codings on every device.
#pragma once

#include <type_traits>

#include "../coded/quantize.h"
#include "tenon/sdk/params.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::fp6 {

struct Schema {
  static constexpr const char* kName = "fp6";
  static constexpr const char* kDoc = "6-bit floats, one scale an output row; activations in f32";
  static constexpr auto kParams = sdk::params(sdk::text({.name = "format",
                                                         .doc = "bits of exponent and mantissa beside the sign",
                                                         .value = "e3m2",
                                                         .choices = "e3m2|e2m3"}));

  // The name of the codes' tensor says the format, since nothing else of the tensors does.
  static constexpr coded::Coding kCodings[] = {
      {.bits = 6, .group = 32, .scaling = coded::Scaling::kRow, .weight = "weight_e3m2"},
      {.bits = 6, .group = 32, .scaling = coded::Scaling::kRow, .weight = "weight_e2m3"}};
  template <uint32_t kIndex>
  using Float = std::conditional_t<kIndex == 0, sdk::SmallFloat<3, 2>, sdk::SmallFloat<2, 3>>;
  template <uint32_t kIndex>
  using Codes = coded::BookCodes<Float<kIndex>>;
  static uint32_t choose(const sdk::Params& params) { return params.text("format") == "e3m2" ? 0 : 1; }
};

}  // namespace tenon::fp6
