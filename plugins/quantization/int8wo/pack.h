// How quantization.int8wo holds a row: the f32 scale, then one int8 a weight, filled up with zeros to a multiple of 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::int8wo {

inline constexpr uint32_t kInt8Row = sdk::cpu::kOwnFormats;
inline constexpr uint32_t kScaleBytes = 4;

constexpr uint64_t row_bytes(uint64_t k) {
  return kScaleBytes + sdk::cpu::padded(k);
}
// s = max(absmax / 127.5, FLT_EPSILON), q = w / s to the nearest (halves to even) within [-128, 127].
// Throws sdk::Failed: a weight that is no number.
void pack_row(const float* w, uint32_t k, uint8_t* row);

}  // namespace tenon::int8wo
