// quantization.absmax has this name and this definition on every device.
#pragma once

#include "../int8_rows/definition.h"
#include "tenon/sdk/params.h"

namespace tenon::absmax {

struct Schema {
  static constexpr const char* kName = "absmax";
  static constexpr const char* kDoc = "int8 by the largest magnitude of a row, of weights and of x; integer products";
  static constexpr auto kParams = sdk::params();

  static constexpr const char* kWeight = "weight_absmax";
  static constexpr float kSteps = 127, kLeastScale = 0, kLeastCode = -127;
  static constexpr float kXSteps = 127, kLeastXScale = 0, kOutlier = int8_rows::kNoOutliers;
};

}  // namespace tenon::absmax
