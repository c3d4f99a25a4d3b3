// Blocks of 32 as ggml's reference defines them:
//   Q8_0        d = max |w| / 127                          w ~ d q,        q in -127 to 127
//   Q4_0, Q5_0  d = (w of the largest magnitude) / -2^(b-1) w ~ d (q - 2^(b-1))
//   Q4_1, Q5_1  d = (max w - min w) / (2^b - 1), m = min w  w ~ d q + m
// Integers come from d in f32, which is stored as fp16 afterwards. Where that is zero the block stands for zeros (for
// m), and the integers are those of zeros.
// Blocks whose scales are searched for are gguf_k_types.cc's and gguf_iq4_types.cc's.
#include "gguf_encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "gguf_fit.h"
#include "gguf_iq4_types.h"
#include "gguf_k_types.h"

namespace tenon::weights {
namespace {

using sdk::float_to_bf16;
using sdk::float_to_half;

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

// Blocks return whether their scales fit.
bool encode_q8_0(const float* w, uint8_t* p) {
  const float d = std::abs(w[largest(w, kBlock)]) / 127;
  const StoredHalf half(d);
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
  const StoredHalf half(d);
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
  const StoredHalf half(d), half_minimum(m);
  if (half.infinite() || half_minimum.infinite()) return false;
  half.store(p);
  half_minimum.store(p + 2);
  const float inverse = half.zero() ? 0 : 1 / d;
  int q[kBlock];
  for (size_t j = 0; j < kBlock; ++j) q[j] = std::min(kMost, static_cast<int>((w[j] - m) * inverse + 0.5F));
  pack<Bits>(q, p + 4);
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
    case TENON_Q2_K:
      return encode_q2_k;
    case TENON_Q3_K:
      return encode_q3_k;
    case TENON_Q4_K:
      return encode_q4_k;
    case TENON_Q5_K:
      return encode_q5_k;
    case TENON_Q6_K:
      return encode_q6_k;
    case TENON_IQ4_NL:
      return encode_iq4_nl;
    case TENON_IQ4_XS:
      return encode_iq4_xs;
    default:
      return nullptr;
  }
}

// This describes a float of 16 bits.
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
