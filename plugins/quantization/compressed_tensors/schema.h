// quantization.compressed_tensors has this name and these codings.
#pragma once

#include "../published/grouped_codings.h"
#include "../published/integer_schema.h"

namespace tenon::compressed_tensors {

inline constexpr auto kAll = published::SixteenBitCodings::of_bits<4, 8>();

struct Schema : published::IntegerSchema<kAll> {
  static constexpr const char* kName = "compressed_tensors";
  static constexpr const char* kDoc =
      "checkpoints of compressed-tensors with integers of 4 or 8 bits; activations in f32";
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::compressed_tensors
