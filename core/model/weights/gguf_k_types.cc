// A group's weights w stand for
//   Q2_K, Q4_K, Q5_K   s q - m, q from 0 to 3, 15 or 31; s and m are integers of 4 or 6 bits times d and dmin
//   Q3_K, Q6_K         s q, q from -4 to 3 or from -32 to 31; s is an integer of 6 or 8 bits times d
// The file says nothing of how s and m are chosen, and plain rounding from the range of a group is not the best choice.
// This makes the weighted square error of a group small, sum u (w - what it stands for)^2, where u grows with the
// weight's size, as errors of large weights tend to cost more. For given integers q the best s and m are a linear fit;
// so some ranges are tried, each is rounded and fitted, and the best fit is kept (least squares in turns, after Lloyd
// 1957). Then d and dmin follow from the largest s and m; a group takes, of the integers about its own s and m, those
// that leave the least error.
#include "gguf_k_types.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gguf_fit.h"

namespace tenon::weights {
namespace {

// This fits a group of kCount weights with integers from kLeast to kMost.
template <uint32_t kCount, int kLeast, int kMost>
class Group {
 public:
  static constexpr uint32_t kWeights = kCount;
  struct Fit {
    float scale = 0, minimum = 0;  // w is near scale * q - minimum
  };

  explicit Group(const float* w) : w_(w) { weigh(w, u_); }

  // Returns the best scale without a minimum. Either sign: the longer side of the integers goes to the larger weights.
  Fit best_scale() const {
    ScaleSearch<kCount> search(w_, u_);
    for (int t = -kTries; t <= kTries; ++t) {
      if (!search.try_end(static_cast<float>(kLeast) + kStep * static_cast<float>(t), &nearest)) break;
    }
    return {search.scale(), 0};
  }

  // Returns the best scale and minimum, none below 0.
  Fit best_scale_and_minimum() const {
    const auto [least, greatest] = std::minmax_element(w_, w_ + kCount);
    const float low = std::min(*least, 0.F), range = *greatest - low;
    Fit best{std::max(range, 0.F) / kMost, -low};
    if (!(range > 0)) return best;
    double smallest = error(best);
    for (int t = -kTries; t <= kTries; ++t) {
      const float inverse = (static_cast<float>(kMost) + kStep * static_cast<float>(t)) / range;
      if (!std::isfinite(inverse)) break;
      const Fit fit = fitted(low, inverse);
      if (!(fit.scale > 0)) continue;
      const double found = error(fit);
      if (found >= smallest) continue;
      smallest = found;
      best = fit;
    }
    return best;
  }

  // Returns the weighted square error with the integers that are nearest.
  double error(const Fit& fit) const {
    const float inverse = inverse_of(fit.scale);
    double sum = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      const float q = nearest((w_[i] + fit.minimum) * inverse), off = fit.scale * q - fit.minimum - w_[i];
      sum += double{u_[i]} * double{off} * double{off};
    }
    return sum;
  }
  int integer(uint32_t i, const Fit& fit) const {
    return static_cast<int>(nearest((w_[i] + fit.minimum) * inverse_of(fit.scale)));
  }

 private:
  static constexpr int kTries = 10;
  static constexpr float kStep = 0.1F;

  static float nearest(float q) { return whole(std::clamp(q, static_cast<float>(kLeast), static_cast<float>(kMost))); }
  // The weighted linear fit of w to the integers that (w - low) * inverse is nearest to.
  Fit fitted(float low, float inverse) const {
    double one = 0, q1 = 0, q2 = 0, w1 = 0, wq = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      const double q = nearest((w_[i] - low) * inverse), u = u_[i], w = w_[i];
      one += u;
      q1 += u * q;
      q2 += u * q * q;
      w1 += u * w;
      wq += u * w * q;
    }
    const double det = one * q2 - q1 * q1;
    if (!(det > 0)) return {};
    const double minimum = (q1 * wq - q2 * w1) / det;
    if (minimum < 0) return {static_cast<float>(wq / q2), 0};
    return {static_cast<float>((one * wq - q1 * w1) / det), static_cast<float>(minimum)};
  }

  const float* w_;
  float u_[kCount];
};

// This holds a superblock: d, dmin, and by group the levels; integers by weight, from 0 on.
template <uint32_t kCount, int kMost>
struct Affine {
  static constexpr uint32_t kGroups = kSuperblock / kCount;
  StoredHalf d{0}, dmin{0};
  Levels level[kGroups];
  uint8_t q[kSuperblock];

  // Returns false if d or dmin is infinite as a half. levels: the largest of a group's.
  bool find(const float* w, int levels) {
    using Of = Group<kCount, 0, kMost>;
    typename Of::Fit fit[kGroups];
    float scale = 0, minimum = 0;
    for (uint32_t g = 0; g < kGroups; ++g) {
      fit[g] = Of(w + g * kCount).best_scale_and_minimum();
      scale = std::max(scale, fit[g].scale);
      minimum = std::max(minimum, fit[g].minimum);
    }
    d = StoredHalf(scale / static_cast<float>(levels));
    dmin = StoredHalf(minimum / static_cast<float>(levels));
    if (d.infinite() || dmin.infinite()) return false;
    for (uint32_t g = 0; g < kGroups; ++g) {
      const Of group(w + g * kCount);
      level[g] = best_levels(group, fit[g], {d.value(), dmin.value()}, {0, levels});
      const typename Of::Fit held{d.value() * static_cast<float>(level[g].scale),
                                  dmin.value() * static_cast<float>(level[g].minimum)};
      for (uint32_t i = 0; i < kCount; ++i) q[g * kCount + i] = static_cast<uint8_t>(group.integer(i, held));
    }
    return true;
  }
};

// This is a superblock without minima, of runs of 16; it has integers by weight, kZero added.
template <int kZero, int kLowest>
struct Symmetric : ScaledGroups<Group<16, -kZero, kZero - 1>, kLowest> {
  using Of = Group<16, -kZero, kZero - 1>;
  uint8_t q[kSuperblock];

  bool find(const float* w) {
    if (!ScaledGroups<Of, kLowest>::find(w)) return false;
    for (uint32_t g = 0; g < this->kGroups; ++g) {
      const Of group(w + g * this->kCount);
      const typename Of::Fit held{this->scale(g), 0};
      for (uint32_t i = 0; i < this->kCount; ++i) {
        q[g * this->kCount + i] = static_cast<uint8_t>(group.integer(i, held) + kZero);
      }
    }
    return true;
  }
};

// Packs eight 6-bit scales and minima into twelve bytes (Q4_K, Q5_K).
void put_scales_and_minima(const Levels (&level)[8], uint8_t* packed) {
  for (uint32_t g = 0; g < 8; ++g) {
    const auto s = static_cast<uint32_t>(level[g].scale), m = static_cast<uint32_t>(level[g].minimum);
    if (g < 4) {
      packed[g] = static_cast<uint8_t>(packed[g] | s);
      packed[g + 4] = static_cast<uint8_t>(packed[g + 4] | m);
    } else {
      packed[g + 4] = static_cast<uint8_t>((s & 15U) | (m & 15U) << 4);
      packed[g - 4] = static_cast<uint8_t>(packed[g - 4] | s >> 4 << 6);
      packed[g] = static_cast<uint8_t>(packed[g] | m >> 4 << 6);
    }
  }
}
// Packs the lower four bits of integers, two groups of 32 to 32 bytes.
void put_nibbles(const uint8_t* q, uint8_t* nibbles) {
  for (uint32_t i = 0; i < kSuperblock; ++i) {
    uint8_t& byte = nibbles[i / 64 * 32 + i % 32];
    byte = static_cast<uint8_t>(byte | (q[i] & 15U) << (i % 64 / 32 * 4));
  }
}
// Packs two bits of integers, four runs of 32 to 32 bytes (Q2_K, Q3_K; Q6_K's upper two).
void put_pairs(const uint8_t* q, uint32_t from, uint8_t* pairs) {
  for (uint32_t i = 0; i < kSuperblock; ++i) {
    uint8_t& byte = pairs[i / 128 * 32 + i % 32];
    byte = static_cast<uint8_t>(byte | (q[i] >> from & 3U) << (i % 128 / 32 * 2));
  }
}

}  // namespace

// Writes 16 bytes of 4-bit scales and minima, 64 of pairs, d, dmin.
bool encode_q2_k(const float* w, uint8_t* p) {
  Affine<16, 3> block;
  if (!block.find(w, 15)) return false;
  std::memset(p, 0, 84);
  for (uint32_t g = 0; g < 16; ++g) p[g] = static_cast<uint8_t>(block.level[g].scale | block.level[g].minimum << 4);
  put_pairs(block.q, 0, p + 16);
  block.d.store(p + 80);
  block.dmin.store(p + 82);
  return true;
}

// Writes 32 bytes of third bits, 64 of the lower two, 12 of 6-bit scales plus 32, d.
bool encode_q3_k(const float* w, uint8_t* p) {
  Symmetric<4, -32> block;
  if (!block.find(w)) return false;
  std::memset(p, 0, 110);
  for (uint32_t i = 0; i < kSuperblock; ++i) {
    p[i % 32] = static_cast<uint8_t>(p[i % 32] | (block.q[i] >> 2 & 1U) << (i / 32));
  }
  put_pairs(block.q, 0, p + 32);
  uint8_t* scales = p + 96;
  for (uint32_t g = 0; g < 16; ++g) {
    const auto s = static_cast<uint32_t>(block.level[g] + 32);
    scales[g % 8] = static_cast<uint8_t>(scales[g % 8] | (s & 15U) << (g / 8 * 4));
    scales[8 + g % 4] = static_cast<uint8_t>(scales[8 + g % 4] | s >> 4 << (g / 4 * 2));
  }
  block.d.store(p + 108);
  return true;
}

// Writes d, dmin, 12 bytes of scales and minima, 128 of nibbles.
bool encode_q4_k(const float* w, uint8_t* p) {
  Affine<32, 15> block;
  if (!block.find(w, 63)) return false;
  std::memset(p, 0, 144);
  block.d.store(p);
  block.dmin.store(p + 2);
  put_scales_and_minima(block.level, p + 4);
  put_nibbles(block.q, p + 16);
  return true;
}

// A block is like Q4_K's, with 32 bytes of fifth bits before the nibbles.
bool encode_q5_k(const float* w, uint8_t* p) {
  Affine<32, 31> block;
  if (!block.find(w, 63)) return false;
  std::memset(p, 0, 176);
  block.d.store(p);
  block.dmin.store(p + 2);
  put_scales_and_minima(block.level, p + 4);
  for (uint32_t i = 0; i < kSuperblock; ++i) {
    p[16 + i % 32] = static_cast<uint8_t>(p[16 + i % 32] | block.q[i] >> 4 << (i / 32));
  }
  put_nibbles(block.q, p + 48);
  return true;
}

// Writes 128 bytes of lower four bits, 64 of upper two, 16 int8 scales, d.
bool encode_q6_k(const float* w, uint8_t* p) {
  Symmetric<32, -128> block;
  if (!block.find(w)) return false;
  std::memset(p, 0, 210);
  for (uint32_t i = 0; i < kSuperblock; ++i) {
    uint8_t& low = p[i / 128 * 64 + i % 64];
    low = static_cast<uint8_t>(low | (block.q[i] & 15U) << (i % 128 / 64 * 4));
  }
  put_pairs(block.q, 4, p + 128);
  for (uint32_t g = 0; g < 16; ++g) p[192 + g] = static_cast<uint8_t>(block.level[g]);
  block.d.store(p + 208);
  return true;
}

}  // namespace tenon::weights
