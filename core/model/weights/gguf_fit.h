// Encoders of GGUF's types whose scales are searched for share this.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

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

// Returns 1 / scale, or 0 where that is not finite.
inline float inverse_of(float scale) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  return std::isfinite(inverse) ? inverse : 0;
}

// This finds, of the scales s that are tried for a group, the one that makes the weighted square error of w ~ s v least.
template <uint32_t kCount>
class ScaleSearch {
 public:
  ScaleSearch(const float* w, const float (&u)[kCount]) : w_(w), u_(u) {
    for (uint32_t i = 0; i < kCount; ++i) peak_ = std::abs(w[i]) > std::abs(peak_) ? w[i] : peak_;
  }
  float scale() const { return scale_; }

  // Puts the largest weight at `end`: nearest(x) is the number v that a weight takes there, and s is fitted to these.
  // Returns false where the weights are too small for that.
  template <class Nearest>
  bool try_end(float end, const Nearest& nearest) {
    const float inverse = end / peak_;
    if (!std::isfinite(inverse)) return false;
    double wv = 0, vv = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      const double v = nearest(w_[i] * inverse);
      wv += u_[i] * double{w_[i]} * v;
      vv += u_[i] * v * v;
    }
    // The error is sum u w^2 - wv^2 / vv.
    if (vv <= 0 || wv * wv <= most_ * vv) return true;
    most_ = wv * wv / vv;
    scale_ = static_cast<float>(wv / vv);
    return true;
  }

 private:
  const float* w_;
  const float (&u_)[kCount];
  float peak_ = 0, scale_ = 0;
  double most_ = 0;
};

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

// This is a superblock without minima: d, and by group a level from kLowest to -kLowest - 1, which d is multiplied by.
template <class Of, int kLowest>
struct ScaledGroups {
  static constexpr uint32_t kCount = Of::kWeights, kGroups = kSuperblock / kCount;
  StoredHalf d{0};
  int level[kGroups];

  // Returns false if d is infinite as a half.
  bool find(const float* w) {
    typename Of::Fit fit[kGroups];
    float peak = 0;
    for (uint32_t g = 0; g < kGroups; ++g) {
      fit[g] = Of(w + g * kCount).best_scale();
      peak = std::abs(fit[g].scale) > std::abs(peak) ? fit[g].scale : peak;
    }
    d = StoredHalf(peak / kLowest);
    if (d.infinite()) return false;
    for (uint32_t g = 0; g < kGroups; ++g) {
      level[g] = best_levels(Of(w + g * kCount), fit[g], {d.value(), 0}, {kLowest, -kLowest - 1}).scale;
    }
    return true;
  }
  float scale(uint32_t g) const { return d.value() * static_cast<float>(level[g]); }
};

}  // namespace tenon::weights
