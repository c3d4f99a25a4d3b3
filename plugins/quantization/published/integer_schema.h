// A scheme's Schema (scheme.h) has this part wherever codes of every coding stand
// for integers and there are no parameters.
#pragma once

#include <memory>

#include "../coded/quantize.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {

class Matrix;

// It may hold a matrix in the codings kAll.
template <const auto& kAll>
struct IntegerSchema {
  static constexpr auto kParams = sdk::params();
  static constexpr auto kCodings = kAll;
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
};

}  // namespace tenon::published
