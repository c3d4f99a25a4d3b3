// Encoders of GGUF's types whose scales are searched for share this.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tenon/sdk/convert.h"

namespace tenon::weights {

inline constexpr uint32_t kSuperblock = 256;

// This is a value as fp16 stores it.
struct StoredHalf {
  uint16_t bits;
  explicit StoredHalf(float value) : bits(sdk::float_to_half(value)) {}
  bool zero() const { return (bits & 0x7fffU) == 0; }
  bool infinite() const { return (bits & 0x7fffU) == 0x7c00U; }
  float value() const { return sdk::half_to_float(bits); }
  void store(uint8_t* p) const { std::memcpy(p, &bits, sizeof(bits)); }
};

// Returns the nearest whole number of x, which is within 2^22 of 0.
inline float whole(float x) {
  constexpr float kShift = 12582912;  // 1.5 * 2^23
  return (x + kShift) - kShift;
}

// Gives each weight of a group the weight of its error: the root of the mean of w^2, plus |w|, up to a factor.
template <uint32_t kCount>
void weigh(const float* w, float (&u)[kCount]) {
  float peak = 0;
  for (uint32_t i = 0; i < kCount; ++i) peak = std::max(peak, std::abs(w[i]));
  double sum = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    u[i] = peak != 0 ? std::abs(w[i] / peak) : 1;
    sum += double{u[i]} * u[i];
  }
  const auto mean = static_cast<float>(std::sqrt(sum / kCount));
  for (float& each : u) each += mean;
}

// This holds a group's integers of its scale and minimum.
struct Levels {
  int scale = 0, minimum = 0;
};

// This holds a superblock's numbers as they are stored: what an integer of a scale and of a minimum stands for.
struct Steps {
  float d, dmin;  // dmin is 0 where there are no minima
};
struct LevelRange {
  int least, most;  // the bounds of a scale; a minimum goes from 0 to most
};

// Returns the integers about a fit's own that leave the least error.
template <class Of>
Levels best_levels(const Of& group, const typename Of::Fit& fit, const Steps& step, const LevelRange& range) {
  const auto [d, dmin] = step;
  const auto [least, most] = range;
  const auto near = [low = static_cast<float>(least), high = static_cast<float>(most)](float value, float unit) {
    return unit != 0 ? static_cast<int>(whole(std::clamp(value / unit, low, high))) : 0;
  };
  const Levels first{near(fit.scale, d), near(fit.minimum, dmin)};
  Levels best = first;
  double smallest = INFINITY;
  for (int s = std::max(first.scale - 1, least); s <= std::min(first.scale + 1, most); ++s) {
    for (int m = std::max(first.minimum - 1, 0); m <= std::min(first.minimum + 1, most); ++m) {
      if (dmin == 0 && m != 0) continue;
      const double found = group.error({d * static_cast<float>(s), dmin * static_cast<float>(m)});
      if (found >= smallest) continue;
      smallest = found;
      best = {s, m};
    }
  }
  return best;
}

}  // namespace tenon::weights
