// quantization.llm_int8 has this name and this definition on every device.
#pragma once

#include "../int8_rows/definition.h"
#include "tenon/sdk/params.h"

namespace tenon::llm_int8 {

struct Schema {
  static constexpr const char* kName = "llm_int8";
  static constexpr const char* kDoc = "int8 weights and rows of x, but what is 6 and more of x in fp16";
  static constexpr auto kParams = sdk::params();

  static constexpr const char* kWeight = "weight_llm_int8";
  static constexpr float kSteps = 127, kLeastScale = 0, kLeastCode = -127;
  static constexpr float kXSteps = 127, kLeastXScale = 0, kOutlier = 6;
};

}  // namespace tenon::llm_int8
