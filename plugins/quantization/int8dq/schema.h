// quantization.int8dq has this name and this definition on every device.
#pragma once

#include <cfloat>

#include "../int8_rows/definition.h"
#include "tenon/sdk/params.h"

namespace tenon::int8dq {

struct Schema {
  static constexpr const char* kName = "int8dq";
  static constexpr const char* kDoc = "int8 weights, one scale an output row; each row of x in int8, integer products";
  static constexpr auto kParams = sdk::params();

  static constexpr const char* kWeight = "weight_int8dq";
  static constexpr float kSteps = 127.5F, kLeastScale = FLT_EPSILON, kLeastCode = -128;
  static constexpr float kXSteps = 127, kLeastXScale = 1e-5F, kOutlier = int8_rows::kNoOutliers;
};

}  // namespace tenon::int8dq
