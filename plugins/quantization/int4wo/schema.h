// quantization.int4wo has this name and these parameters on every device.
#pragma once

#include "tenon/sdk/plain_copy.h"

namespace tenon::int4wo {

struct Schema {
  static constexpr const char* kName = "int4wo";
  static constexpr const char* kDoc = "4-bit weights in groups with scale and zero point; activations in f32";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "group_size",
                    .doc = "weights of a row that share a scale and a zero point",
                    .value = 64,
                    .min = 32,
                    .max = 256,
                    .choices = "32|64|128|256",
                    .unit = "weights"}),
      sdk::boolean({.name = "hqq",
                    .doc = "zero points are moved by half-quadratic quantization to where rounding costs least",
                    .value = false}),
      sdk::plain_copy_param());
};

}  // namespace tenon::int4wo
