// quantization.hqq has this name and these codings.
#pragma once

#include "../published/integer_schema.h"
#include "../published/paired_codings.h"

namespace tenon::hqq {

inline constexpr auto kAll = published::paired_codings<2, 3, 4, 8>();

struct Schema : published::IntegerSchema<kAll> {
  static constexpr const char* kName = "hqq";
  static constexpr const char* kDoc = "checkpoints of HQQ with 1, 2, 3, 4 or 8 bits in groups; activations in f32";
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::hqq
