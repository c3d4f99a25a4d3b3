// These choose scales and codes, on the host and, with relaxed constexpr, on a GPU; they define the schemes.
#pragma once

#include <cfloat>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>

#include "coding.h"
#include "tenon/sdk/convert.h"

namespace tenon::coded {

// The weights of a group or a row lie within [least, greatest], and so does 0.
struct Range {
  float least = 0, greatest = 0;
  bool finite = true;

  constexpr void add(float w) {
    if (w < least) least = w;
    if (w > greatest) greatest = w;
    if (!(w >= -FLT_MAX && w <= FLT_MAX)) finite = false;
  }
  // Returns the magnitude, never as -0, whose bits are above those of every positive float.
  constexpr float magnitude() const { return greatest > -least ? greatest : 0 - least; }
};

struct Scale {
  float scale = 0;
  uint32_t zero = 0;  // it is 0 where there is no zero point
};

// Codes stand for weights: BookCodes and IntegerCodes, below.
template <class C>
concept WeightCodes = requires(const Range& range, float w, const Scale& scale, uint32_t code) {
  { C::scale_of(range) } -> std::same_as<Scale>;    // Returns the scale of the weights in that range.
  { C::code(w, scale) } -> std::same_as<uint32_t>;  // Returns the code of w; w and its scale are finite.
  { C::is_nan(code) } -> std::same_as<bool>;        // Says whether a code may be in a file and stands for no number.
};

// It rounds to the nearest whole number, halves to even. x: within 2^22 of 0.
constexpr float rounded(float x) {
  constexpr float kWhole = 12582912;  // 1.5 * 2^23
  return (x + kWhole) - kWhole;
}

// A weight is a scale times a value of the book: the scale takes the largest weight to the book's largest
// value, and each weight gets the nearest one.
template <class BookType>
struct BookCodes {
  using Book = BookType;
  static constexpr Scale scale_of(const Range& r) { return {r.magnitude() / Book::kLargest, 0}; }
  static constexpr uint32_t code(float w, const Scale& s) { return Book::nearest(s.scale != 0 ? w / s.scale : 0); }
  static constexpr bool is_nan(uint32_t code) { return Book::is_nan(code); }
};

// A weight is scale * (code - zero): the codes 0 to 2^kBits - 1 cover the range, and zero stands for 0 exactly.
template <uint32_t kBits>
struct IntegerCodes {
  static constexpr float kTop = (1U << kBits) - 1;
  static constexpr Scale scale_of(const Range& r) {
    const float scale = sdk::bf16_to_float(sdk::float_to_bf16((r.greatest - r.least) / kTop));
    if (scale == 0) return {};
    return {scale, static_cast<uint32_t>(rounded(within(-r.least / scale, 0)))};
  }
  static constexpr uint32_t code(float w, const Scale& s) {
    const float steps = rounded(within(s.scale != 0 ? w / s.scale : 0, -kTop));
    return static_cast<uint32_t>(within(steps + static_cast<float>(s.zero), 0));
  }
  static constexpr bool is_nan(uint32_t) { return false; }

 private:
  static constexpr float within(float q, float least) { return q < least ? least : q > kTop ? kTop : q; }
};

// In kTwoLevel a group's scale is a whole multiple of the row's; the largest group has this one.
inline constexpr float kScaleSteps = 255;
constexpr uint32_t scale_code(float scale, float row_scale) {
  return row_scale != 0 ? static_cast<uint32_t>(rounded(scale / row_scale)) : 0;
}

namespace detail {

template <class T>
void put(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}
inline Range range_of(const float* w, uint32_t n) {
  Range r;
  for (uint32_t i = 0; i < n; ++i) r.add(w[i]);
  return r;
}
// It writes scale i of a group before its units, and returns the scale as it is held then.
inline Scale put_scale(const Coding& c, Scale s, float row_scale, uint32_t i, uint8_t* to) {
  if (c.scaling == Scaling::kGroup) put(to, s.scale);
  if (c.scaling == Scaling::kTwoLevel) {
    const uint32_t code = scale_code(s.scale, row_scale);
    put(to, static_cast<uint8_t>(code));
    s.scale = static_cast<float>(code) * row_scale;
  }
  if (has_zero_points(c.scaling)) {
    put(to + sizeof(uint16_t) * i, sdk::float_to_bf16(s.scale));
    put(to + sizeof(uint16_t) * c.scales() + i, static_cast<uint8_t>(s.zero));
  }
  return s;
}

}  // namespace detail

// It makes a row of k finite weights as it is held; `shared` of them share a scale, a multiple of those that have one in
// memory. It returns false if a scale is too large for its format.
template <class Codes>
bool quantize_row(const Coding& c, uint32_t shared, const float* w, uint32_t k, uint8_t* row) {
  const uint32_t each = c.group / c.scales();  // so many weights have a scale in memory
  std::memset(row, 0, c.row_bytes(k));
  float row_scale = Codes::scale_of(detail::range_of(w, k)).scale;
  if (c.scaling == Scaling::kTwoLevel) row_scale /= kScaleSteps;
  if (c.row_header() != 0) detail::put(row, row_scale);
  uint8_t* group = row + c.row_header();
  Scale chosen{row_scale, 0};
  for (uint32_t begin = 0; begin < k; begin += c.group, group += c.group_bytes()) {
    for (uint32_t i = 0; i < c.scales(); ++i) {
      const uint32_t first = begin + i * each, there = first < k ? k - first : 0;
      if (c.scaling != Scaling::kRow && first % shared == 0) {
        chosen = Codes::scale_of(detail::range_of(w + std::min(first, k), std::min(shared, there)));
      }
      if (!std::isfinite(chosen.scale)) return false;
      const Scale s = detail::put_scale(c, chosen, row_scale, i, group);
      for (uint32_t j = 0; j < each; ++j) {
        const uint32_t in_group = i * each + j;
        uint8_t* unit = group + c.group_header() + in_group / sdk::kUnitCodes * sdk::unit_bytes(c.bits);
        sdk::add_to_unit(c.bits, Codes::code(j < there ? w[first + j] : 0, s), unit, in_group % sdk::kUnitCodes);
      }
    }
  }
  return true;
}

}  // namespace tenon::coded
