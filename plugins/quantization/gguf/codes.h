// These are the codes of gguf's packed formats.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::gguf {

enum PackedCode : uint32_t {
  kPackedQ4_0 = sdk::cpu::kOwnFormats,
  kPackedQ4_1,
  kPackedQ8_0,
  kPackedQ4_K,
  kPackedQ6_K,
  kPackedQ5_0
};

}  // namespace tenon::gguf
