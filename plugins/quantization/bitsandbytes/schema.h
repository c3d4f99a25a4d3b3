// quantization.bitsandbytes has this name and these codings.
#pragma once

#include <memory>

#include "../coded/books.h"
#include "../coded/quantize.h"
#include "../int8_rows/definition.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {
class Matrix;
}

namespace tenon::bitsandbytes {

enum CodingIndex : uint32_t { kNf4, kFp4, kInt8, kCodingCount };

namespace detail {
template <uint32_t kIndex>
struct CodesOf {
  using Type = coded::BookCodes<coded::NormalFloat4>;
};
template <>
struct CodesOf<kFp4> {
  using Type = coded::BookCodes<coded::Float4>;
};
template <>
struct CodesOf<kInt8> {
  using Type = coded::IntegerCodes<8>;
};
}  // namespace detail

struct Schema {
  static constexpr const char* kName = "bitsandbytes";
  static constexpr const char* kDoc =
      "checkpoints of bitsandbytes in nf4, fp4 or int8; activations in f32, or of int8 in int8 but "
      "for what is large";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "activations",
                 .doc = "x of matrices in int8: auto: int8 by a scale a row, but what is as large as config.json's "
                        "llm_int8_threshold and larger in fp16; f32: as it is",
                 .value = "auto",
                 .choices = "auto|f32"}));

  static constexpr uint32_t kBlock = 64;
  static constexpr coded::Coding kCodings[kCodingCount] = {
      {.bits = 4, .group = kBlock, .scaling = coded::Scaling::kGroup},
      {.bits = 4, .group = kBlock, .scaling = coded::Scaling::kGroup},
      {.bits = 8, .group = 32, .scaling = coded::Scaling::kRow}};
  template <uint32_t kIndex>
  using Codes = typename detail::CodesOf<kIndex>::Type;
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

// The package finds the scale of a row of x by this rule.
struct RoundedSchema {
  static constexpr const char* kName = Schema::kName;
  static constexpr const char* kWeight = "weight";
  static constexpr float kSteps = 127, kLeastScale = 0, kLeastCode = -128;
  static constexpr float kXSteps = 127, kLeastXScale = 0, kOutlier = int8_rows::kNoOutliers;
};

}  // namespace tenon::bitsandbytes
