// quantization.none has this name and these parameters on every device.
#pragma once

#include <string>

#include "tenon/abi/types.h"
#include "tenon/sdk/plain_copy.h"

namespace tenon::none {

struct Schema {
  static constexpr const char* kName = "none";
  static constexpr const char* kDoc = "weights as plain floats: fp32, fp16 or bf16";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "dtype",
                 .doc = "how weights are held; stored: floats as in the file, quantized blocks as the fp32 values they "
                        "stand for",
                 .value = "stored",
                 .choices = "stored|fp32|fp16|bf16"}),
      sdk::plain_copy_param());
};

// Returns TENON_FORMAT_NONE for what stays as stored.
inline tenon_format format_named(const std::string& dtype) {
  return dtype == "fp32" ? TENON_F32 : dtype == "fp16" ? TENON_F16 : dtype == "bf16" ? TENON_BF16 : TENON_FORMAT_NONE;
}

}  // namespace tenon::none
