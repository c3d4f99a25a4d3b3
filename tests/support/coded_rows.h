// These rows are what nf4, fp4, fp8, fp6 and uintx are to hold, from the published definitions alone: every code is
// tried, in float64. Nothing here is shared with the schemes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "tenon/sdk/convert.h"

namespace tenon::test {

// It says which of two equally near codes is taken.
enum class Tie { kEven, kNearerToZero, kSmaller };

// This is a scheme of codes and its parameters. In a book, code i stands for book[i] times the scale.
struct CodedForm {
  std::vector<double> book;
  std::vector<double> multiplied = {};  // what is multiplied for each of the book's values, if it is another number
  Tie tie = Tie::kNearerToZero;
  int64_t group = 0;        // 0: the whole row has one scale
  bool two_levels = false;  // a group's scale is a byte times the row's
  uint32_t bits = 0;        // integers have so many, with a zero point instead of a book
};

// A float has a sign, exponent and mantissa, as IEEE 754 has it but without infinities; e4m3 has a NaN, left out here.
inline std::vector<double> small_floats(int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, magnitudes = 1 << (exponent_bits + mantissa_bits);
  std::vector<double> book;
  for (int code = 0; code < 2 * magnitudes; ++code) {
    const int exponent = code % magnitudes >> mantissa_bits, mantissa = code % (1 << mantissa_bits);
    const double fraction = mantissa / std::exp2(mantissa_bits);
    const double value = exponent == 0 ? fraction * std::exp2(1 - bias) : (1 + fraction) * std::exp2(exponent - bias);
    const bool nan = exponent_bits == 4 && mantissa_bits == 3 && code % magnitudes == magnitudes - 1;
    book.push_back(nan ? std::nan("") : code < magnitudes ? value : -value);
  }
  return book;
}
// These are rounded to f32, as the published table is.
inline std::vector<double> normal_float4() {
  const float book[] = {-1.0F,
                        -0.6961928009986877F,
                        -0.5250730514526367F,
                        -0.39491748809814453F,
                        -0.28444138169288635F,
                        -0.18477343022823334F,
                        -0.09105003625154495F,
                        0.0F,
                        0.07958029955625534F,
                        0.16093020141124725F,
                        0.24611230194568634F,
                        0.33791524171829224F,
                        0.44070982933044434F,
                        0.5626170039176941F,
                        0.7229568362236023F,
                        1.0F};
  return {std::begin(book), std::end(book)};
}
// Returns what one row on a GPU multiplies instead: bytes of two tables, each in its own unit. Where the byte of the other
// table is negative, that table's unit is taken off.
inline std::vector<double> normal_float4_of_tables() {
  struct Entry {
    size_t code;
    int byte;
  };
  constexpr double kLowerUnit = 0.01234276, kUpperUnit = 0.005125034;
  const Entry lower[] = {{0, -81}, {1, -56}, {6, -7}, {7, 0}, {9, 13}, {13, 46}, {14, 59}, {15, 81}};
  const Entry upper[] = {{8, 18}, {4, -53}, {2, -100}, {11, 66}, {10, 48}, {3, -77}, {5, -36}, {12, 86}};
  std::vector<double> numbers(16);
  for (size_t i = 0; i < 8; ++i) {
    numbers[lower[i].code] = kLowerUnit * lower[i].byte - (upper[i].byte < 0 ? kUpperUnit : 0);
    numbers[upper[i].code] = kUpperUnit * upper[i].byte - (lower[i].byte < 0 ? kLowerUnit : 0);
  }
  return numbers;
}
// Returns the values of fp4 by code, in twelfths.
inline std::vector<double> float4() {
  std::vector<double> book = {0, 0.0625, 8, 12, 4, 6, 2, 3};
  for (int i = 0; i < 8; ++i) book.push_back(-book[static_cast<size_t>(i)]);
  return book;
}
inline CodedForm coded_form(const std::string& scheme, int64_t first = 0, int64_t second = 0,
                            const std::string& text = "") {
  if (scheme == "nf4") return {.book = normal_float4(), .tie = Tie::kSmaller, .group = 64, .two_levels = first != 0};
  if (scheme == "fp4") return {.book = float4(), .group = 64, .two_levels = first != 0};
  if (scheme == "fp8") return {.book = small_floats(4, 3), .tie = Tie::kEven};
  if (scheme == "fp6") return {.book = small_floats(text[1] - '0', text[3] - '0'), .tie = Tie::kEven};
  return {.book = {}, .group = second, .bits = static_cast<uint32_t>(first)};
}

namespace coded_detail {

inline float magnitude(const float* w, size_t n) {
  float largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(w[i]));
  return largest;
}
inline double nearest(const CodedForm& form, double x) {
  size_t best = form.book.size();
  for (size_t i = 0; i < form.book.size(); ++i) {
    if (std::isnan(form.book[i])) continue;
    if (best == form.book.size()) {
      best = i;
      continue;
    }
    const double off = std::abs(form.book[i] - x), least = std::abs(form.book[best] - x);
    const bool preferred = form.tie == Tie::kEven           ? i % 2 < best % 2
                           : form.tie == Tie::kNearerToZero ? std::abs(form.book[i]) < std::abs(form.book[best])
                                                            : form.book[i] < form.book[best];
    if (off < least || (off == least && preferred)) best = i;
  }
  return form.multiplied.empty() ? form.book[best] : form.multiplied[best];
}
inline void hold_in_book(const CodedForm& form, float* w, size_t k) {
  const double largest = *std::max_element(form.book.begin(), form.book.end(), [](double a, double b) {
    return std::isnan(a) || (!std::isnan(b) && a < b);
  });
  const auto scale_of = [&](const float* from, size_t n) { return magnitude(from, n) / static_cast<float>(largest); };
  const float row_scale = scale_of(w, k) / (form.two_levels ? 255.F : 1.F);
  const size_t group = form.group == 0 ? k : static_cast<size_t>(form.group);
  for (size_t at = 0; at < k; at += group) {
    const size_t n = std::min(group, k - at);
    const float steps = !form.two_levels ? 1 : row_scale == 0 ? 0 : std::rint(scale_of(w + at, n) / row_scale);
    const float unit = form.two_levels ? row_scale : scale_of(w + at, n), scale = steps * unit;
    for (size_t i = at; i < at + n; ++i) {
      const float x = scale == 0 ? 0 : w[i] / scale;
      w[i] = static_cast<float>(nearest(form, double{x}) * double{steps}) * unit;
    }
  }
}
inline void hold_as_integers(const CodedForm& form, float* w, size_t k) {
  const auto group = static_cast<size_t>(form.group);
  const float top = std::exp2(static_cast<float>(form.bits)) - 1;
  for (size_t at = 0; at < k; at += group) {
    const size_t end = std::min(k, at + group);
    const float least = std::min(0.F, *std::min_element(w + at, w + end));
    const float greatest = std::max(0.F, *std::max_element(w + at, w + end));
    const float scale = sdk::bf16_to_float(sdk::float_to_bf16((greatest - least) / top));
    const float zero = scale == 0 ? 0 : std::clamp(std::rint(-least / scale), 0.F, top);
    for (size_t i = at; i < end; ++i) {
      const float q = scale == 0 ? 0 : std::clamp(std::rint(w[i] / scale) + zero, 0.F, top);
      w[i] = scale * (q - zero);
    }
  }
}

}  // namespace coded_detail

inline void hold_coded(const CodedForm& form, float* w, size_t k) {
  form.bits != 0 ? coded_detail::hold_as_integers(form, w, k) : coded_detail::hold_in_book(form, w, k);
}

}  // namespace tenon::test
