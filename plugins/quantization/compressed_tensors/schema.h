// quantization.compressed_tensors has this name and these codings, and rounds x by this rule where the checkpoint says
// so.
#pragma once

#include "../int8_rows/definition.h"
#include "../published/grouped_codings.h"
#include "../published/integer_schema.h"

namespace tenon::compressed_tensors {

inline constexpr auto kAll = published::SixteenBitCodings::of_bits<4, 8>();

struct Schema : published::IntegerSchema<kAll> {
  static constexpr const char* kName = "compressed_tensors";
  static constexpr const char* kDoc =
      "checkpoints of compressed-tensors with integers of 4 or 8 bits; activations in f32, or in int8 where they say "
      "so";
  // Throws Refused for a matrix that is not stored so, or whose x is to be rounded.
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

// The package finds the scales of weights and of x by this rule.
struct RoundedSchema {
  static constexpr const char* kName = Schema::kName;
  static constexpr const char* kWeight = "weight";
  static constexpr float kSteps = 127.5F, kLeastScale = 0, kLeastCode = -128;
  static constexpr float kXSteps = 127.5F, kLeastXScale = 0, kOutlier = int8_rows::kNoOutliers;
};

}  // namespace tenon::compressed_tensors
