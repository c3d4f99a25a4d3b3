#include "pack.h"

#include <cmath>
#include <cstring>
#include <string>

#include "../rows/quantize_rows.h"
#include "tenon/sdk/error.h"

namespace tenon::int8wo {

void pack_row(const float* w, uint32_t k, uint8_t* row) {
  for (uint32_t i = 0; i < k; ++i) {
    if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
  }
  rows::quantize_int8_row(w, k, row);
}

void take_row(const uint8_t* weight, const uint8_t* scale, uint32_t k, uint8_t* row) {
  float value = 0;
  std::memcpy(&value, scale, sizeof(value));
  if (!std::isfinite(value)) throw sdk::Failed("the scale of a row is not finite");
  rows::join_int8_row(weight, scale, k, row);
}

}  // namespace tenon::int8wo
