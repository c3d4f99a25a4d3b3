// A codec says how a KV cache stores the key or value of one head in one cell. Each codec is one functor, the same on
// the host and on a GPU: every cache's append, every attention's reader and the copies of record_dequant go through it.
//
//   struct Codec {
//     using Element = ...;                            the code of one number
//     using Stored = ...;                             what a row is an array of: Element, or bytes of two codes each
//     static constexpr tenon_format kFormat;
//     static constexpr bool kScaled;                  true: an element is a multiple of the scale of its cell and head
//     static constexpr float kMost;                   with scales: the greatest multiple, by magnitude
//     static constexpr Element encode(float x, float scale);    scale is that of kv_scale(), as it is stored
//     static constexpr float decode(Element e, float scale);
//   };
//
// TENON_U8 is the codec of 4-bit numbers (KvI4): a byte has two, so the planes of a view have half as many bytes in a
// row as a head has elements, rounded up. kv_row_bytes() and kv_codec_name() know that.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tenon/abi/kv_cache.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::sdk {

template <class C>
concept KvCodec = requires(typename C::Element e, const typename C::Stored* row, float x) {
  { C::kFormat } -> std::convertible_to<tenon_format>;
  { C::kScaled } -> std::convertible_to<bool>;
  { C::encode(x, x) } -> std::same_as<typename C::Element>;
  { C::decode(e, x) } -> std::same_as<float>;
  { *row } -> std::convertible_to<typename C::Stored>;
};

struct KvF32 {
  using Element = float;
  using Stored = Element;
  static constexpr tenon_format kFormat = TENON_F32;
  static constexpr bool kScaled = false;
  static constexpr Element encode(float x, float) { return x; }
  static constexpr float decode(Element e, float) { return e; }
};
struct KvF16 {
  using Element = uint16_t;
  using Stored = Element;
  static constexpr tenon_format kFormat = TENON_F16;
  static constexpr bool kScaled = false;
  static constexpr Element encode(float x, float) { return float_to_half(x); }
  static constexpr float decode(Element e, float) { return half_to_float(e); }
};
struct KvBf16 {
  using Element = uint16_t;
  using Stored = Element;
  static constexpr tenon_format kFormat = TENON_BF16;
  static constexpr bool kScaled = false;
  static constexpr Element encode(float x, float) { return float_to_bf16(x); }
  static constexpr float decode(Element e, float) { return bf16_to_float(e); }
};
// Integers from -127 to 127 are multiples of the scale, rounded to the nearest even. encode() divides and does not
// multiply by the inverse, so that compilers which fuse products with sums give the same bits.
struct KvI8 {
  using Element = int8_t;
  using Stored = Element;
  static constexpr tenon_format kFormat = TENON_I8;
  static constexpr bool kScaled = true;
  static constexpr float kMost = 127.0f;
  static constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  static constexpr Element encode(float x, float scale) {
    const float q = (x / scale + kRounder) - kRounder;
    return static_cast<Element>(q > kMost ? kMost : q < -kMost ? -kMost : q == q ? q : 0.0f);
  }
  static constexpr float decode(Element e, float scale) { return static_cast<float>(e) * scale; }
};
// E4M3's numbers (small_floats.h) are multiples of the scale, rounded to the nearest even. What the scale's own
// rounding puts above kMost becomes kMost, and a NaN, whose scale is NaN, becomes 0.
struct KvF8 {
  using Element = uint8_t;
  using Stored = Element;
  using Numbers = SmallFloat<4, 3>;
  static constexpr tenon_format kFormat = TENON_F8E4M3;
  static constexpr bool kScaled = true;
  static constexpr float kMost = Numbers::kLargest;
  static constexpr Element encode(float x, float scale) {
    const float multiple = x / scale;
    return static_cast<Element>(multiple == multiple ? Numbers::nearest(multiple) : 0);
  }
  static constexpr float decode(Element e, float scale) { return Numbers::value(e) * scale; }
};
// Whole numbers from -8 to 7 are multiples of the scale, rounded to the nearest even; a NaN becomes 0. The element of
// greatest magnitude is -8 times the scale, which has the other sign for it. A code is the number + 8; element 2 i of a
// row is the lower half of byte i, and an odd last byte has a 0 in its upper half.
struct KvI4 {
  using Element = uint8_t;
  using Stored = uint8_t;
  static constexpr tenon_format kFormat = TENON_U8;
  static constexpr bool kScaled = true;
  static constexpr float kMost = 8.0f;
  static constexpr Element kZero = 8;  // the code of 0
  static constexpr Element encode(float x, float scale) {
    const float q = (x / scale + KvI8::kRounder) - KvI8::kRounder;
    return static_cast<Element>((q > kMost - 1 ? kMost - 1 : q < -kMost ? -kMost : q == q ? q : 0.0f) + kMost);
  }
  static constexpr float decode(Element e, float scale) { return (static_cast<float>(e) - kMost) * scale; }
};
// The keys of a group of cells in four bits have a zero and a step for each dimension (TENON_KV_CHANNEL_KEYS):
// the zero is the least element, the step a fifteenth of the distance to the greatest, both as they are
// stored. KIVI (Liu et al., arXiv:2402.02750).
struct KvChannel {
  float zero, step;

  static constexpr float kMost = 15.0f, kLeastStep = 1e-5f, kLargest = 65504.0f;
  static constexpr KvChannel of(float least, float most, uint32_t format) {
    least = least < -kLargest ? -kLargest : least;
    most = most > kLargest ? kLargest : most;
    const auto stored = [&](float x) { return format == TENON_F16 ? half_to_float(float_to_half(x)) : x; };
    const float zero = stored(least), step = (most - zero) / kMost;
    return {zero, stored(step > kLeastStep ? step : kLeastStep)};
  }
  constexpr uint8_t encode(float x) const {
    const float q = ((x - zero) / step + KvI8::kRounder) - KvI8::kRounder;
    return static_cast<uint8_t>(q > kMost ? kMost : q > 0 ? q : 0.0f);
  }
  constexpr float decode(uint8_t code) const { return zero + static_cast<float>(code) * step; }
};
template <class C>
inline constexpr bool kTwoInAByte = C::kFormat == TENON_U8;

// Returns the code of element d of a row.
template <class C>
constexpr typename C::Element kv_code(const typename C::Stored* row, uint32_t d) {
  if constexpr (kTwoInAByte<C>) {
    return static_cast<typename C::Element>(row[d / 2] >> d % 2 * 4 & 15);
  } else {
    return row[d];
  }
}
// Returns the element that is stored at place i of a row of n elements x(d).
template <class C, class X>
constexpr typename C::Stored kv_stored(uint32_t i, uint32_t n, const X& x, float scale) {
  if constexpr (kTwoInAByte<C>) {
    const uint32_t upper = 2 * i + 1 < n ? C::encode(x(2 * i + 1), scale) : C::kZero;
    return static_cast<typename C::Stored>(C::encode(x(2 * i), scale) | upper << 4);
  } else {
    return C::encode(x(i), scale);
  }
}

// It calls f with the codec of a format, and throws Refused for a format that is no codec.
template <class F>
decltype(auto) with_kv_codec(uint32_t format, F&& f) {
  switch (format) {
    case TENON_F32:
      return f(KvF32());
    case TENON_F16:
      return f(KvF16());
    case TENON_BF16:
      return f(KvBf16());
    case TENON_I8:
      return f(KvI8());
    case TENON_F8E4M3:
      return f(KvF8());
    case TENON_U8:
      return f(KvI4());
    default:
      throw Refused(std::string("no codec of a cache stores ") + tenon_format_name(format));
  }
}
constexpr bool is_kv_codec(uint32_t format) {
  return format == TENON_F32 || format == TENON_F16 || format == TENON_BF16 || format == TENON_I8 ||
         format == TENON_F8E4M3 || format == TENON_U8;
}
constexpr bool is_scaled_codec(uint32_t format) {
  return format == TENON_I8 || format == TENON_F8E4M3 || format == TENON_U8;
}
// These return how many elements of the codec's format a row of a plane has, and how many bytes.
constexpr uint32_t kv_row_stored(uint32_t codec, uint32_t dim) {
  return codec == TENON_U8 ? dim / 2 + dim % 2 : dim;
}
inline uint64_t kv_row_bytes(uint32_t codec, uint32_t dim) {
  return uint64_t{kv_row_stored(codec, dim)} * tenon_format_block(codec).bytes;
}
// Returns the bytes of an element, which may be half a byte.
inline double kv_element_bytes(uint32_t codec) {
  return codec == TENON_U8 ? 0.5 : tenon_format_block(codec).bytes;
}
inline const char* kv_codec_name(uint32_t codec) {
  return codec == TENON_U8 ? "i4" : tenon_format_name(codec);
}

// It gives the scale of a cell and head in a scaled codec, as a plane with scales of that format (f32 or f16) stores
// it. most: the element of greatest magnitude; where two of both signs are as great, the positive one. A NaN among the
// elements is the greatest, and the scale is NaN then, and what is read.
constexpr float kv_scale(uint32_t codec, uint32_t format, float most) {
  constexpr float kLeast = 1e-5f;
  const float greatest = codec == TENON_F8E4M3 ? KvF8::kMost : codec == TENON_U8 ? KvI4::kMost : KvI8::kMost;
  const float magnitude = (most < 0 ? -most : most) / greatest;
  const float least = magnitude < kLeast ? kLeast : magnitude;
  const float scale = codec == TENON_U8 && most >= 0 ? -least : least;
  return format == TENON_F16 ? half_to_float(float_to_half(scale)) : scale;
}
inline float load_kv_scale(uint32_t format, const std::byte* from) {
  if (format == TENON_F16) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof(bits));
    return half_to_float(bits);
  }
  float scale;
  std::memcpy(&scale, from, sizeof(scale));
  return scale;
}
inline void store_kv_scale(uint32_t format, float scale, std::byte* to) {
  if (format == TENON_F16) {
    const uint16_t bits = float_to_half(scale);
    std::memcpy(to, &bits, sizeof(bits));
  } else {
    std::memcpy(to, &scale, sizeof(scale));
  }
}

// A format of the SDK's caches has one codec for keys and values. Keys are stored after rope unless `rotated` is false.
constexpr tenon_kv_format kv_format(tenon_format codec, tenon_format scale = TENON_FORMAT_NONE, bool rotated = true) {
  auto f = abi_struct<tenon_kv_format>();
  f.k.codec = f.v.codec = codec;
  f.k.scale = f.v.scale = scale;
  f.rotated = rotated ? 1 : 0;
  return f;
}
constexpr tenon_kv_format plain_kv_format(tenon_format codec) {
  return kv_format(codec);
}

}  // namespace tenon::sdk
