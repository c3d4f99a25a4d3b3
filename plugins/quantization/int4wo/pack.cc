#include "pack.h"

#include <cmath>
#include <cstring>
#include <string>

#include "tenon/sdk/cpu/quantize_rows.h"
#include "tenon/sdk/error.h"

namespace tenon::int4wo {

void pack_row(const float* w, uint32_t k, uint32_t group, uint8_t* row) {
  for (uint32_t i = 0; i < k; ++i) {
    if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
  }
  if (!sdk::cpu::quantize_int4_row(w, k, group, row)) throw sdk::Failed("a group of weights that bf16 cannot hold");
}

void take_row(const uint8_t* stored, uint32_t k, uint32_t group, uint8_t* row) {
  const uint64_t bytes = row_bytes(k, group), step = row_bytes(group, group);
  for (uint64_t at = 0; at < bytes; at += step) {
    uint16_t header[2];
    std::memcpy(header, stored + at, sizeof(header));
    for (const uint16_t half : header) {
      if (!std::isfinite(sdk::bf16_to_float(half))) {
        throw sdk::Failed("the scale or zero point of a group is not finite");
      }
    }
  }
  std::memcpy(row, stored, bytes);
}

}  // namespace tenon::int4wo
