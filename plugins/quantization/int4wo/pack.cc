#include "pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "tenon/sdk/cpu/convert.h"
#include "tenon/sdk/error.h"

namespace tenon::int4wo {
namespace {

using sdk::cpu::bf16_to_float;
using sdk::cpu::float_to_bf16;

void pack_group(const float* w, uint32_t n, uint32_t group, uint8_t* to) {
  const auto [min, max] = std::minmax_element(w, w + n);
  const float step = std::max((*max - *min) / 15.0F, 1e-6F);
  const uint16_t stored[] = {float_to_bf16(step), float_to_bf16(*min + 8.0F * step)};
  const float scale = bf16_to_float(stored[0]), zero = bf16_to_float(stored[1]);
  if (!std::isfinite(scale) || !std::isfinite(zero)) throw sdk::Failed("a group of weights that bf16 cannot hold");
  std::memcpy(to, stored, kGroupHeader);
  const float first = zero - 8.0F * scale;
  const auto code = [&](uint32_t i) -> uint32_t {
    return i < n ? static_cast<uint32_t>(std::clamp(std::nearbyint((w[i] - first) / scale), 0.0F, 15.0F)) : 8;
  };
  for (uint32_t i = 0; i < group / 2; ++i) {
    const uint32_t at = i / 16 * 32 + i % 16;
    to[kGroupHeader + i] = static_cast<uint8_t>(code(at) | code(at + 16) << 4);
  }
}

}  // namespace

void pack_row(const float* w, uint32_t k, uint32_t group, uint8_t* row) {
  for (uint32_t i = 0; i < k; ++i) {
    if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
  }
  for (uint32_t i = 0; i < k; i += group, row += kGroupHeader + group / 2) {
    pack_group(w + i, std::min(group, k - i), group, row);
  }
}

}  // namespace tenon::int4wo
