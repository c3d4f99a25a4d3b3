#include "pack.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <string>

#include "tenon/sdk/error.h"

namespace tenon::int8wo {

void pack_row(const float* w, uint32_t k, uint8_t* row) {
  float largest = 0;
  for (uint32_t i = 0; i < k; ++i) {
    if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
    largest = std::max(largest, std::abs(w[i]));
  }
  const float scale = std::max(largest / 127.5F, FLT_EPSILON);
  std::memcpy(row, &scale, sizeof(scale));
  uint8_t* q = row + kScaleBytes;
  for (uint32_t i = 0; i < k; ++i) {
    q[i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(w[i] / scale), -128.0F, 127.0F)));
  }
  std::fill(q + k, row + row_bytes(k), uint8_t{0});
}

}  // namespace tenon::int8wo
