// quantization.int8wo holds a row as ../rows/stored_rows.h defines int8 rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../rows/stored_rows.h"
#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::int8wo {

inline constexpr uint32_t kInt8Row = sdk::cpu::kOwnFormats;
inline constexpr uint32_t kScaleBytes = 4;

constexpr uint64_t row_bytes(uint64_t k) {
  return rows::int8_row_bytes(k);
}
// Both throw sdk::Failed where a weight or a scale is not finite.
void pack_row(const float* w, uint32_t k, uint8_t* row);
// Takes a row from its tensors in the file.
void take_row(const uint8_t* weight, const uint8_t* scale, uint32_t k, uint8_t* row);

}  // namespace tenon::int8wo
