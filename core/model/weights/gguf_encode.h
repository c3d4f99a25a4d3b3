// These functions turn rows of f32 into what GGUF stores: the inverse of tenon/sdk/gguf_blocks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tenon/abi/types.h"

namespace tenon::weights {

struct BadWeight {
  size_t index;     // its index in the row
  const char* why;  // "is NaN", "is too large ..."
};

bool can_encode(tenon_format format);

// Encodes n weights, whole blocks, to n / elements * bytes of tenon_format_block(format). Whatever it accepts reads
// back finite. Rounding is to the nearest, of plain floats half to even, of blocks' integers half away from zero.
std::optional<BadWeight> encode_row(tenon_format format, const float* w, size_t n, uint8_t* out);

// Returns the first weight that is NaN or infinite.
std::optional<BadWeight> find_not_finite(const float* w, size_t n);

}  // namespace tenon::weights
