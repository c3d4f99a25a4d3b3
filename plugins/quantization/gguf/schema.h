// quantization.gguf has this name and these parameters on every device.
#pragma once

#include "tenon/sdk/params.h"

namespace tenon::gguf {

struct Schema {
  static constexpr const char* kName = "gguf";
  static constexpr const char* kDoc = "weights as the file stores them: GGUF's block formats and plain floats";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "activations",
                 .doc = "f32: exact weights times fp32; int8: rows of x in int8 blocks of 32, integer products, on the "
                        "CPU; auto: what is faster",
                 .value = "auto",
                 .choices = "auto|f32|int8"}));
};

}  // namespace tenon::gguf
