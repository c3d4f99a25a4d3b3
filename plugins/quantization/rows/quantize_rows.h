// This makes the rows of stored_rows.h of f32, and so defines int8wo and int4wo: it rounds to the nearest, halves to
// even. Weights must be finite.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "stored_rows.h"
#include "tenon/sdk/convert.h"

namespace tenon::rows {

// s = max(absmax / 127.5, FLT_EPSILON), q = w / s within [-128, 127].
inline void quantize_int8_row(const float* w, uint32_t k, uint8_t* row) {
  float largest = 0;
  for (uint32_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(w[i]));
  const float scale = std::max(largest / 127.5F, FLT_EPSILON);
  std::memcpy(row, &scale, sizeof(scale));
  uint8_t* q = row + sizeof(scale);
  for (uint32_t i = 0; i < k; ++i) {
    q[i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(w[i] / scale), -128.0F, 127.0F)));
  }
  std::fill(q + k, row + int8_row_bytes(k), uint8_t{0});
}

namespace detail {

inline bool quantize_int4_group(const float* w, uint32_t n, uint32_t group, uint8_t* to) {
  const auto [min, max] = std::minmax_element(w, w + n);
  const float step = std::max((*max - *min) / 15.0F, 1e-6F);
  const uint16_t stored[] = {sdk::float_to_bf16(step), sdk::float_to_bf16(*min + 8.0F * step)};
  const float scale = sdk::bf16_to_float(stored[0]), zero = sdk::bf16_to_float(stored[1]);
  if (!std::isfinite(scale) || !std::isfinite(zero)) return false;
  std::memcpy(to, stored, sizeof(stored));
  const float first = zero - 8.0F * scale;
  const auto code = [&](uint32_t i) -> uint32_t {
    return i < n ? static_cast<uint32_t>(std::clamp(std::nearbyint((w[i] - first) / scale), 0.0F, 15.0F)) : 8;
  };
  for (uint32_t i = 0; i < group / 2; ++i) {
    const uint32_t at = i / 16 * 32 + i % 16;
    to[sizeof(stored) + i] = static_cast<uint8_t>(code(at) | code(at + 16) << 4);
  }
  return true;
}

}  // namespace detail

// Per group: s = max((max - min) / 15, 1e-6), z = min + 8 s, both rounded to bf16 before q = (w - (z - 8 s)) / s
// within [0, 15]. Weights past k are left out of min and max. False: the weights of a group are beyond bf16.
inline bool quantize_int4_row(const float* w, uint32_t k, uint32_t group, uint8_t* row) {
  for (uint32_t i = 0; i < k; i += group, row += int4_row_bytes(group, group)) {
    if (!detail::quantize_int4_group(w + i, std::min(group, k - i), group, row)) return false;
  }
  return true;
}

}  // namespace tenon::rows
