// quantization.gptq has this name and these codings.
#pragma once

#include <memory>

#include "../published/grouped_codings.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {
class Matrix;
}

namespace tenon::gptq {

struct Schema {
  static constexpr const char* kName = "gptq";
  static constexpr const char* kDoc = "checkpoints in GPTQ's form: 2, 3, 4 or 8 bits in groups; activations in f32";
  static constexpr auto kParams = sdk::params();

  static constexpr auto kCodings = published::HalfCodings::of_bits<2, 3, 4, 8>();
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::gptq
