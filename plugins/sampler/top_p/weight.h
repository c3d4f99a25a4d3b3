// Candidates weigh the same on every machine, to the bit: additions and multiplications
// are not fused, and no library is called.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tenon::top_p {

constexpr float kBinsPerUnit = 8;
constexpr uint32_t kBins = 256;  // the last one holds candidates that weigh nothing: e^-28 is less than a unit

// Returns e^x for x <= 0, and e^-87 below -87. The relative error is below 3e-7.
constexpr float exp_negative(float x) {
  const float bounded = x > -87.0F ? x : -87.0F;
  const auto n = static_cast<int32_t>(bounded * 0x1.715476p+0F - 0.5F);
  const auto m = static_cast<float>(n);
  const float r = (bounded - m * 0x1.62e4p-1F) - m * 0x1.7f7d1cp-20F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = (p * r * r + r) + 1.0F;
  return p * __builtin_bit_cast(float, static_cast<uint32_t>(n + 127) << 23);
}

// Returns the distance from the greatest logit, which must be finite, in bins; below 0 for infinite logits.
constexpr float distance(float logit, float greatest) {
  return (greatest - logit) * kBinsPerUnit;
}
constexpr uint32_t bin_of(float distance) {
  return static_cast<uint32_t>(std::clamp(distance, 0.0F, static_cast<float>(kBins - 1)));
}
constexpr float weight_of(float distance) {
  return exp_negative(std::max(distance, 0.0F) * (-1 / kBinsPerUnit));
}
constexpr uint64_t units(float weight) {
  return static_cast<uint64_t>(weight * 0x1p40F);
}

}  // namespace tenon::top_p
