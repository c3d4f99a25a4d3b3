// A group's weights w stand for s v, v one of sixteen numbers from -127 to 113. In IQ4_NL s is an fp16 number, in IQ4_XS an
// integer from -32 to 31 times one fp16 number d of eight groups. As for the K types (gguf_k_types.cc) the weighted square
// error of a group is made small: the largest weight is put near the number of its end, and on either side of it; each
// weight takes the nearest number, and of the scales that fit these best the best one is kept.
#include "gguf_iq4_types.h"

#include <array>
#include <cstring>

#include "gguf_fit.h"
#include "tenon/sdk/gguf_books.h"

namespace tenon::weights {
namespace {

constexpr uint32_t kGroup = 32, kCodes = 16;
constexpr auto& kNumbers = sdk::Iq4Numbers::kNumbers;

// Returns the middle between the number of a code and the next number.
constexpr float middle_after(uint32_t code) {
  return static_cast<float>(kNumbers[code] + kNumbers[code + 1]) / 2;
}
constexpr int kLeast = kNumbers[0], kMost = kNumbers[kCodes - 1];

// This has the nearest code of each whole number from kLeast on.
constexpr auto kNearest = [] {
  std::array<uint8_t, kMost - kLeast + 1> nearest{};
  uint8_t code = 0;
  for (int i = kLeast; i <= kMost; ++i) {
    while (code + 1U < kCodes && static_cast<float>(i) > middle_after(code)) ++code;
    nearest[static_cast<size_t>(i - kLeast)] = code;
  }
  return nearest;
}();

// Returns the code of the nearest number. At most one middle lies between two whole numbers.
uint32_t nearest_code(float x) {
  x = std::clamp(x, static_cast<float>(kLeast), static_cast<float>(kMost));
  const uint32_t code = kNearest[static_cast<size_t>(x - static_cast<float>(kLeast))];
  return code + 1 < kCodes && x > middle_after(code) ? code + 1 : code;
}

float nearest_number(float x) {
  return kNumbers[nearest_code(x)];
}

// This fits a group of weights with the numbers.
class BookGroup {
 public:
  static constexpr uint32_t kWeights = kGroup;
  struct Fit {
    float scale = 0, minimum = 0;  // the minimum is 0
  };

  explicit BookGroup(const float* w) : w_(w) { weigh(w, u_); }

  // Either sign is tried: the numbers go further below zero than above it.
  Fit best_scale() const {
    ScaleSearch<kGroup> search(w_, u_);
    for (const int end : {kLeast, kMost}) {
      for (int t = -kTries; t <= kTries; ++t) {
        if (!search.try_end(static_cast<float>(end + t), &nearest_number)) break;
      }
    }
    return {search.scale(), 0};
  }

  // Returns the weighted square error with the numbers that are nearest.
  double error(const Fit& fit) const {
    const float inverse = inverse_of(fit.scale);
    double sum = 0;
    for (uint32_t i = 0; i < kGroup; ++i) {
      const float off = fit.scale * nearest_number(w_[i] * inverse) - w_[i];
      sum += double{u_[i]} * double{off} * double{off};
    }
    return sum;
  }
  // Writes the codes, weights i and i + 16 to byte i.
  void put_codes(float scale, uint8_t* nibbles) const {
    const float inverse = inverse_of(scale);
    for (uint32_t i = 0; i < kGroup / 2; ++i) {
      const uint32_t low = nearest_code(w_[i] * inverse), high = nearest_code(w_[i + kGroup / 2] * inverse);
      nibbles[i] = static_cast<uint8_t>(low | high << 4);
    }
  }

 private:
  static constexpr int kTries = 8;

  const float* w_;
  float u_[kGroup];
};

}  // namespace

// Writes d, 16 bytes of codes.
bool encode_iq4_nl(const float* w, uint8_t* p) {
  const BookGroup group(w);
  const StoredHalf d(group.best_scale().scale);
  if (d.infinite()) return false;
  d.store(p);
  group.put_codes(d.value(), p + sizeof(d.bits));
  return true;
}

// Writes d, two upper bits of eight scales plus 32, their lower four, 128 bytes of codes.
bool encode_iq4_xs(const float* w, uint8_t* p) {
  constexpr int kLowest = -32;
  ScaledGroups<BookGroup, kLowest> block;
  if (!block.find(w)) return false;
  constexpr uint32_t kUpper = 2, kLower = 4, kNibbles = 8;  // they begin at these bytes
  std::memset(p, 0, kNibbles);
  block.d.store(p);
  for (uint32_t g = 0; g < block.kGroups; ++g) {
    const auto stored = static_cast<uint32_t>(block.level[g] - kLowest);
    uint8_t &upper = p[kUpper + g / 4], &lower = p[kLower + g / 2];
    upper = static_cast<uint8_t>(upper | stored >> 4 << (g % 4 * 2));
    lower = static_cast<uint8_t>(lower | (stored & 15U) << (g % 2 * 4));
    BookGroup(w + g * kGroup).put_codes(block.scale(g), p + kNibbles + g * kGroup / 2);
  }
  return true;
}

}  // namespace tenon::weights
