// quantization.mxfp4 has this name and these codings.
#pragma once

#include <memory>

#include "../coded/books.h"
#include "../coded/quantize.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {
class Matrix;
}

namespace tenon::mxfp4 {

enum CodingIndex : uint32_t { kMx, kNv, kCodingCount };

struct Schema {
  static constexpr const char* kName = "mxfp4";
  static constexpr const char* kDoc =
      "checkpoints in MXFP4 and NVFP4: floats of 4 bits (e2m1) in groups; activations in f32";
  static constexpr auto kParams = sdk::params();

  static constexpr coded::Coding kCodings[kCodingCount] = {
      {.bits = 4, .group = 32, .scaling = coded::Scaling::kExponent},
      {.bits = 4, .group = 32, .scaling = coded::Scaling::kSixteens}};
  template <uint32_t>
  using Codes = coded::BookCodes<coded::E2m1>;
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::mxfp4
