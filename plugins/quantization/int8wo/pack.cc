#include "pack.h"

#include <cmath>
#include <cstring>
#include <string>

#include "tenon/sdk/cpu/quantize_rows.h"
#include "tenon/sdk/error.h"

namespace tenon::int8wo {

void pack_row(const float* w, uint32_t k, uint8_t* row) {
  for (uint32_t i = 0; i < k; ++i) {
    if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
  }
  sdk::cpu::quantize_int8_row(w, k, row);
}

void take_row(const uint8_t* stored, uint32_t k, uint8_t* row) {
  float scale = 0;
  std::memcpy(&scale, stored, sizeof(scale));
  if (!std::isfinite(scale)) throw sdk::Failed("the scale of a row is not finite");
  std::memcpy(row, stored, row_bytes(k));
}

}  // namespace tenon::int8wo
