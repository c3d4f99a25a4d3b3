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

// Takes s = max(absmax / 127.5, FLT_EPSILON), and q = w / s within [-128, 127].
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

// The weights of a group share these, in bf16: a weight stands for (q - 8) * scale + zero.
struct Int4Group {
  uint16_t scale = 0, zero = 0;

  float step() const { return sdk::bf16_to_float(scale); }
  float first() const { return sdk::bf16_to_float(zero) - 8.0F * step(); }  // q = 0 stands for it
  bool finite() const { return std::isfinite(step()) && std::isfinite(sdk::bf16_to_float(zero)); }
};

// Returns the code of a weight in a group of that first() and step().
inline uint32_t int4_code(float w, float first, float step) {
  return static_cast<uint32_t>(std::clamp(std::nearbyint((w - first) / step), 0.0F, 15.0F));
}

// Takes s = max((max - min) / 15, 1e-6), and z = min + 8 s, of n weights.
inline Int4Group int4_group_of_range(const float* w, uint32_t n) {
  const auto [min, max] = std::minmax_element(w, w + n);
  const float step = std::max((*max - *min) / 15.0F, 1e-6F);
  return {sdk::float_to_bf16(step), sdk::float_to_bf16(*min + 8.0F * step)};
}

// Writes the group and the codes of its n weights; those up to `group` are 8.
inline void put_int4_group(const Int4Group& of, const float* w, uint32_t n, uint32_t group, uint8_t* to) {
  const uint16_t stored[] = {of.scale, of.zero};
  std::memcpy(to, stored, sizeof(stored));
  const float first = of.first(), step = of.step();
  const auto code = [&](uint32_t i) { return i < n ? int4_code(w[i], first, step) : 8; };
  for (uint32_t i = 0; i < group / 2; ++i) {
    const uint32_t at = i / 16 * 32 + i % 16;
    to[sizeof(stored) + i] = static_cast<uint8_t>(code(at) | code(at + 16) << 4);
  }
}

// Each group has scale and zero point by choose(w, n), then q = (w - (z - 8 s)) / s within [0, 15]. Weights past k are
// left out. Returns false if the weights of a group are beyond bf16.
template <class Choose>
bool quantize_int4_row(const float* w, uint32_t k, uint32_t group, uint8_t* row, Choose&& choose) {
  for (uint32_t i = 0; i < k; i += group, row += int4_row_bytes(group, group)) {
    const uint32_t n = std::min(group, k - i);
    const Int4Group of = choose(w + i, n);
    if (!of.finite()) return false;
    put_int4_group(of, w + i, n, group, row);
  }
  return true;
}
inline bool quantize_int4_row(const float* w, uint32_t k, uint32_t group, uint8_t* row) {
  return quantize_int4_row(w, k, group, row, &int4_group_of_range);
}

}  // namespace tenon::rows
