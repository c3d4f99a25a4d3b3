// These do to heads what a cache does that stores them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/hadamard.h"

namespace tenon::conformance {

// Returns the scale that a codec stores a row with; 1 if it has none.
inline float scale_of(tenon_format codec, const float* row, uint32_t dim) {
  return sdk::is_scaled_codec(codec) ? sdk::kv_scale(codec, TENON_F16, sdk::cpu::most_of_row(row, dim)) : 1.0f;
}
// Rounds heads of so many dimensions to what a codec stores.
inline void round_to(tenon_format codec, uint32_t dim, std::vector<float>& heads) {
  std::vector<std::byte> bytes(dim * sizeof(float));
  for (size_t at = 0; at < heads.size(); at += dim) {
    const float scale = scale_of(codec, &heads[at], dim);
    sdk::cpu::store_row(codec, &heads[at], dim, bytes.data(), scale);
    sdk::cpu::load_row(codec, bytes.data(), dim, &heads[at], scale);
  }
}

// Applies the Hadamard rotation to heads of so many dimensions.
inline void rotate(uint32_t dim, std::vector<float>& heads) {
  for (size_t at = 0; at < heads.size(); at += dim) sdk::rotate_head(&heads[at], dim);
}

}  // namespace tenon::conformance
