// quantization.fp6 has this name, these parameters and these codings on every device.
#pragma once

#include <iterator>
#include <string>
#include <tuple>

#include "../coded/quantize.h"
#include "tenon/sdk/params.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::fp6 {

struct Schema {
  static constexpr const char* kName = "fp6";
  static constexpr const char* kDoc = "floats of 6 or 5 bits, one scale an output row; activations in f32";
  static constexpr auto kParams = sdk::params(sdk::text({.name = "format",
                                                         .doc = "bits of exponent and mantissa beside the sign",
                                                         .value = "e3m2",
                                                         .choices = "e3m2|e2m3|e2m2|e3m1"}));

  // The name of the codes' tensor says the format, since nothing else of the tensors does.
  static constexpr coded::Coding kCodings[] = {
      {.bits = 6, .group = 32, .scaling = coded::Scaling::kRow, .weight = "weight_e3m2"},
      {.bits = 6, .group = 32, .scaling = coded::Scaling::kRow, .weight = "weight_e2m3"},
      {.bits = 5, .group = 32, .scaling = coded::Scaling::kRow, .weight = "weight_e2m2"},
      {.bits = 5, .group = 32, .scaling = coded::Scaling::kRow, .weight = "weight_e3m1"}};
  template <uint32_t kIndex>
  using Float = std::tuple_element_t<
      kIndex, std::tuple<sdk::SmallFloat<3, 2>, sdk::SmallFloat<2, 3>, sdk::SmallFloat<2, 2>, sdk::SmallFloat<3, 1>>>;
  template <uint32_t kIndex>
  using Codes = coded::BookCodes<Float<kIndex>>;
  static uint32_t choose(const sdk::Params& params) {
    const std::string name = "weight_" + std::string(params.text("format"));
    for (uint32_t i = 1; i < std::size(kCodings); ++i) {
      if (name == kCodings[i].weight) return i;
    }
    return 0;
  }
};

}  // namespace tenon::fp6
