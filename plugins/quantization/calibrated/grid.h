// A group of weights may take these values in GPTQ's and AWQ's forms: scale * (code - zero), with a scale in f16 and a
// zero point that is a code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tenon/sdk/convert.h"

namespace tenon::calibrated {

struct Grid {
  float scale = 0;    // a number of f16
  uint32_t zero = 1;  // from `least zero` of the form on
  uint32_t top = 15;  // the largest code

  // Code 0 stands for what is no number as well: a grid that is not finite leaves
  // such weights, and is refused in the end.
  uint32_t code(float w) const {
    const float steps = scale != 0 ? std::nearbyint(w / scale) : 0, place = steps + static_cast<float>(zero);
    return place > 0 ? static_cast<uint32_t>(std::min(place, static_cast<float>(top))) : 0;
  }
  float value(uint32_t code) const { return scale * (static_cast<float>(code) - static_cast<float>(zero)); }
  float rounded(float w) const { return value(code(w)); }
  uint16_t half() const { return sdk::float_to_half(scale); }
  bool finite() const { return std::isfinite(scale); }
};

struct GridRule {
  uint32_t bits;
  bool symmetric;       // zero is the middle code
  uint32_t least_zero;  // GPTQ's first version stores zero points less 1, and has no 0

  uint32_t top() const { return (1U << bits) - 1; }
  // Returns the grid from `low` to `high`, low <= 0 <= high.
  Grid grid(float low, float high) const {
    Grid g{.top = top()};
    if (symmetric) {
      high = std::max(-low, high);
      g.zero = (g.top + 1) / 2;
      g.scale = in_half(2 * high / static_cast<float>(g.top));
      return g;
    }
    g.scale = in_half((high - low) / static_cast<float>(g.top));
    g.zero = least_zero;
    if (g.scale == 0 || !g.finite()) return g;
    const float zero = std::nearbyint(-low / g.scale);
    if (zero < static_cast<float>(least_zero)) {
      // All weights but roundings are above 0: the codes below the zero point are not used.
      g.scale = in_half(high / static_cast<float>(g.top - least_zero));
      return g;
    }
    g.zero = static_cast<uint32_t>(std::min(zero, static_cast<float>(g.top)));
    return g;
  }
  // Returns the grid of the range of n weights.
  Grid grid_of(const float* w, uint32_t n) const {
    float low = 0, high = 0;
    for (uint32_t i = 0; i < n; ++i) {
      low = std::min(low, w[i]);
      high = std::max(high, w[i]);
    }
    return grid(low, high);
  }

 private:
  static float in_half(float x) { return sdk::half_to_float(sdk::float_to_half(x)); }
};

}  // namespace tenon::calibrated
