// Blocks of 32 as ggml's reference defines them:
//   Q8_0        d = max |w| / 127                          w ~ d q,        q in -127 to 127
//   Q4_0, Q5_0  d = (w of the largest magnitude) / -2^(b-1) w ~ d (q - 2^(b-1))
//   Q4_1, Q5_1  d = (max w - min w) / (2^b - 1), m = min w  w ~ d q + m
// Integers come from d in f32, which is stored as fp16 afterwards. Where that is zero the block stands for zeros (for
// m), and the integers are those of zeros.
// Superblocks of 256 by the types' own rules for scales, rounded to the nearest, without ggml's search for scales that
// leave smaller errors:
//   Q6_K  16 runs of 16, the scale of each (w of the largest magnitude) / -32; d makes the largest scale -128
//   Q4_K  8 groups of 32, of each scale = (max w - min w) / 15 and min = -min w, with min w at most 0; d and dmin make
//         the largest 63. Integers come from the scales as they are stored.
#include "gguf_encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tenon/sdk/convert.h"

namespace tenon::weights {
namespace {

using sdk::float_to_bf16;
using sdk::float_to_half;
using sdk::half_to_float;

constexpr size_t kBlock = 32;
constexpr const char* kBeyondHalf = "is too large: the scale of its block is beyond half precision (65504)";

int nearest(float v) {
  const int whole = static_cast<int>(v);
  const float rest = v - static_cast<float>(whole);
  return whole + (rest >= 0.5F ? 1 : 0) - (rest <= -0.5F ? 1 : 0);
}

size_t largest(const float* w, size_t n) {
  size_t at = 0;
  for (size_t i = 1; i < n; ++i) {
    if (std::abs(w[i]) > std::abs(w[at])) at = i;
  }
  return at;
}

// Returns a value as fp16 stores it.
struct Half {
  uint16_t bits;
  explicit Half(float value) : bits(float_to_half(value)) {}
  bool zero() const { return (bits & 0x7fffU) == 0; }
  bool infinite() const { return (bits & 0x7fffU) == 0x7c00U; }
  float value() const { return half_to_float(bits); }
  void store(uint8_t* p) const { std::memcpy(p, &bits, sizeof(bits)); }
};

// Blocks return whether their scales fit.
bool encode_q8_0(const float* w, uint8_t* p) {
  const float d = std::abs(w[largest(w, kBlock)]) / 127;
  const Half half(d);
  if (half.infinite()) return false;
  half.store(p);
  const float inverse = half.zero() ? 0 : 1 / d;
  for (size_t j = 0; j < kBlock; ++j) p[2 + j] = static_cast<uint8_t>(nearest(w[j] * inverse));
  return true;
}

// Byte j holds weight j (low nibble) and j + 16 (high nibble); bit j of the word before, if any, the fifth bit.
template <int Bits>
void pack(const int* q, uint8_t* p) {
  if constexpr (Bits == 5) {
    uint32_t fifth = 0;
    for (size_t j = 0; j < kBlock; ++j) fifth |= static_cast<uint32_t>(q[j] >> 4) << j;
    std::memcpy(p, &fifth, sizeof(fifth));
    p += sizeof(fifth);
  }
  for (size_t j = 0; j < kBlock / 2; ++j) p[j] = static_cast<uint8_t>((q[j] & 15) | (q[j + 16] & 15) << 4);
}

template <int Bits>
bool encode_symmetric(const float* w, uint8_t* p) {
  constexpr int kZero = 1 << (Bits - 1);
  const float d = w[largest(w, kBlock)] / -kZero;
  const Half half(d);
  if (half.infinite()) return false;
  half.store(p);
  const float inverse = half.zero() ? 0 : 1 / d;
  int q[kBlock];
  for (size_t j = 0; j < kBlock; ++j) {
    q[j] = std::min(2 * kZero - 1, static_cast<int>(w[j] * inverse + (static_cast<float>(kZero) + 0.5F)));
  }
  pack<Bits>(q, p + 2);
  return true;
}

template <int Bits>
bool encode_with_minimum(const float* w, uint8_t* p) {
  constexpr int kMost = (1 << Bits) - 1;
  const auto [low, high] = std::minmax_element(w, w + kBlock);
  const float m = *low, d = (*high - m) / kMost;
  const Half half(d), half_minimum(m);
  if (half.infinite() || half_minimum.infinite()) return false;
  half.store(p);
  half_minimum.store(p + 2);
  const float inverse = half.zero() ? 0 : 1 / d;
  int q[kBlock];
  for (size_t j = 0; j < kBlock; ++j) q[j] = std::min(kMost, static_cast<int>((w[j] - m) * inverse + 0.5F));
  pack<Bits>(q, p + 4);
  return true;
}

// 128 bytes of low nibbles, 64 of upper two bits, 16 int8 scales, d.
bool encode_q6_k(const float* w, uint8_t* p) {
  constexpr size_t kRun = 16;
  float scale[kRun];
  for (size_t run = 0; run < kRun; ++run) scale[run] = w[run * kRun + largest(w + run * kRun, kRun)] / -32;
  const float d = scale[largest(scale, kRun)] / -128;
  const Half half(d);
  if (half.infinite()) return false;
  std::memset(p, 0, 210);
  half.store(p + 208);
  for (size_t run = 0; run < kRun; ++run) {
    const int s = half.zero() ? 0 : std::min(127, nearest(scale[run] / d));
    p[192 + run] = static_cast<uint8_t>(s);
    const float step = half.value() * static_cast<float>(s);
    const size_t part = run / 8, quarter = run % 8 / 2, at = run % 2 * 16;
    uint8_t *low = p + part * 64 + quarter % 2 * 32 + at, *high = p + 128 + part * 32 + at;
    for (size_t j = 0; j < kRun; ++j) {
      const float q = step == 0 ? 0 : std::clamp(w[run * kRun + j] / step, -32.F, 31.F);
      const auto stored = static_cast<unsigned>(nearest(q) + 32);
      low[j] |= static_cast<uint8_t>((stored & 15U) << (quarter / 2 * 4));
      high[j] |= static_cast<uint8_t>((stored >> 4) << (2 * quarter));
    }
  }
  return true;
}

// d, dmin, 12 bytes of eight 6-bit scales and minima, 128 of nibbles.
bool encode_q4_k(const float* w, uint8_t* p) {
  constexpr size_t kGroups = 8;
  float scale[kGroups], minimum[kGroups];
  for (size_t g = 0; g < kGroups; ++g) {
    const auto [low, high] = std::minmax_element(w + g * kBlock, w + (g + 1) * kBlock);
    minimum[g] = std::max(0.F, -*low);
    scale[g] = std::max(0.F, *high + minimum[g]) / 15;
  }
  const float d = scale[largest(scale, kGroups)] / 63, dmin = minimum[largest(minimum, kGroups)] / 63;
  const Half half(d), half_minimum(dmin);
  if (half.infinite() || half_minimum.infinite()) return false;
  std::memset(p, 0, 144);
  half.store(p);
  half_minimum.store(p + 2);
  uint8_t* packed = p + 4;
  for (size_t g = 0; g < kGroups; ++g) {
    const int s = half.zero() ? 0 : std::min(63, nearest(scale[g] / d));
    const int m = half_minimum.zero() ? 0 : std::min(63, nearest(minimum[g] / dmin));
    if (g < 4) {
      packed[g] |= static_cast<uint8_t>(s);
      packed[g + 4] |= static_cast<uint8_t>(m);
    } else {
      packed[g + 4] = static_cast<uint8_t>((s & 15) | (m & 15) << 4);
      packed[g - 4] |= static_cast<uint8_t>(s >> 4 << 6);
      packed[g] |= static_cast<uint8_t>(m >> 4 << 6);
    }
    const float step = half.value() * static_cast<float>(s), shift = half_minimum.value() * static_cast<float>(m);
    uint8_t* nibbles = p + 16 + g / 2 * kBlock;
    for (size_t j = 0; j < kBlock; ++j) {
      const float q = step == 0 ? 0 : std::clamp((w[g * kBlock + j] + shift) / step, 0.F, 15.F);
      nibbles[j] |= static_cast<uint8_t>(nearest(q) << (g % 2 * 4));
    }
  }
  return true;
}

using EncodeBlock = bool (*)(const float* w, uint8_t* p);

EncodeBlock block_encoder(tenon_format format) {
  switch (format) {
    case TENON_Q4_0:
      return encode_symmetric<4>;
    case TENON_Q5_0:
      return encode_symmetric<5>;
    case TENON_Q4_1:
      return encode_with_minimum<4>;
    case TENON_Q5_1:
      return encode_with_minimum<5>;
    case TENON_Q8_0:
      return encode_q8_0;
    case TENON_Q4_K:
      return encode_q4_k;
    case TENON_Q6_K:
      return encode_q6_k;
    default:
      return nullptr;
  }
}

// A float of 16 bits.
struct ShortFloat {
  uint16_t infinity;
  const char* too_large;  // why a weight that would be infinite is refused
};
template <class Convert>
std::optional<BadWeight> encode_16_bits(const float* w, size_t n, uint8_t* out, const ShortFloat& format,
                                        Convert convert) {
  for (size_t i = 0; i < n; ++i) {
    const uint16_t bits = convert(w[i]);
    if ((bits & 0x7fffU) == format.infinity) return BadWeight{i, format.too_large};
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
  return std::nullopt;
}

}  // namespace

bool can_encode(tenon_format format) {
  return format == TENON_F32 || format == TENON_F16 || format == TENON_BF16 || block_encoder(format) != nullptr;
}

std::optional<BadWeight> find_not_finite(const float* w, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if ((std::bit_cast<uint32_t>(w[i]) & 0x7f800000U) != 0x7f800000U) continue;
    return BadWeight{i, std::isnan(w[i]) ? "is NaN" : "is infinite"};
  }
  return std::nullopt;
}

std::optional<BadWeight> encode_row(tenon_format format, const float* w, size_t n, uint8_t* out) {
  if (const auto bad = find_not_finite(w, n)) return bad;
  if (format == TENON_F32) {
    std::memcpy(out, w, n * sizeof(float));
    return std::nullopt;
  }
  if (format == TENON_F16) return encode_16_bits(w, n, out, {0x7c00, "is too large for F16 (65504)"}, float_to_half);
  if (format == TENON_BF16) return encode_16_bits(w, n, out, {0x7f80, "is too large for BF16"}, float_to_bf16);
  const EncodeBlock encode = block_encoder(format);
  const tenon_block block = tenon_format_block(format);
  for (size_t i = 0; i < n; i += block.elements, out += block.bytes) {
    if (!encode(w + i, out)) return BadWeight{i + largest(w + i, block.elements), kBeyondHalf};
  }
  return std::nullopt;
}

}  // namespace tenon::weights
