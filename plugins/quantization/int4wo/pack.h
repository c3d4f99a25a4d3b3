// quantization.int4wo holds a row as ../rows/stored_rows.h defines int4 rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../rows/encode.h"
#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::int4wo {

inline constexpr uint32_t kGroupHeader = 4;

// Returns the row format's code of a group size.
constexpr uint32_t code_of(uint32_t group) {
  return sdk::cpu::kOwnFormats + group;
}
constexpr uint64_t row_bytes(uint64_t k, uint32_t group) {
  return rows::int4_row_bytes(k, group);
}
// Both throw sdk::Failed where a weight, a scale or a zero point is not finite.
void pack_row(const float* w, uint32_t k, uint32_t group, rows::Int4GroupOf group_of, uint8_t* row);
// Takes a row from its tensors in the file.
void take_row(const rows::Int4Tensors& from, uint32_t k, uint32_t group, uint8_t* row);

}  // namespace tenon::int4wo
