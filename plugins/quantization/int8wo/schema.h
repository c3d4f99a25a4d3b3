// quantization.int8wo has this name and these parameters on every device.
#pragma once

#include "tenon/sdk/plain_copy.h"

namespace tenon::int8wo {

struct Schema {
  static constexpr const char* kName = "int8wo";
  static constexpr const char* kDoc = "int8 weights, one scale an output row; activations in f32";
  static constexpr auto kParams = sdk::params(sdk::plain_copy_param());
};

}  // namespace tenon::int8wo
