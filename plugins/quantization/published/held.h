// The CPU holds matrices of published checkpoints in codings that all schemes have together, so
// that their kernels are compiled once (CMakeLists.txt) and not by every scheme that reads such
// codings. A scheme's own codings are among these.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../coded/books.h"
#include "../coded/quantize.h"
#include "grouped_codings.h"
#include "paired_codings.h"

namespace tenon::published {

// Rows have integers with a sign and one scale, in f32.
inline constexpr coded::Coding kIntegerRows = {.bits = 8, .group = 32, .scaling = coded::Scaling::kRow};

namespace detail {
constexpr auto integer_codings() {
  constexpr auto kHalf = HalfCodings::of_bits<2, 3, 4, 8>();
  constexpr auto kBf16 = GroupedCodings<coded::Scaling::kZeroPoint>::of_bits<4, 8>();
  constexpr auto kPairs = paired_codings<2, 3, 4, 8>();
  std::array<coded::Coding, kHalf.size() + kBf16.size() + kPairs.size() + 1> all;
  auto* to = std::copy(kHalf.begin(), kHalf.end(), all.data());
  to = std::copy(kBf16.begin(), kBf16.end(), to);
  to = std::copy(kPairs.begin(), kPairs.end(), to);
  *to = kIntegerRows;
  return all;
}
}  // namespace detail

// These are the codings of gptq, awq, compressed_tensors, torchao and hqq.
struct HeldIntegers {
  static constexpr auto kCodings = detail::integer_codings();
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
};

// These are the codings of bitsandbytes and mxfp4: nf4, fp4, two of e2m1, and integers.
struct HeldBooks {
  static constexpr coded::Coding kCodings[] = {{.bits = 4, .group = 64, .scaling = coded::Scaling::kGroup},
                                               {.bits = 4, .group = 64, .scaling = coded::Scaling::kGroup},
                                               {.bits = 4, .group = 32, .scaling = coded::Scaling::kExponent},
                                               {.bits = 4, .group = 32, .scaling = coded::Scaling::kSixteens},
                                               kIntegerRows};
  template <uint32_t kIndex>
  using Codes = std::tuple_element_t<
      kIndex, std::tuple<coded::BookCodes<coded::NormalFloat4>, coded::BookCodes<coded::Float4>,
                         coded::BookCodes<coded::E2m1>, coded::BookCodes<coded::E2m1>, coded::IntegerCodes<8>>>;
};

namespace detail {

// Returns which of Held's codings has these codes; the number of Held's codings if nowhere.
template <class Held, class Codes>
constexpr uint32_t index_in_held(const coded::Coding& coding) {
  uint32_t index = std::size(Held::kCodings);
  const auto look_at = [&]<uint32_t kHeld>(std::integral_constant<uint32_t, kHeld>) {
    const coded::Coding& c = Held::kCodings[kHeld];
    const bool same = c.bits == coding.bits && c.group == coding.group && c.scaling == coding.scaling;
    if (same && std::is_same_v<Codes, typename Held::template Codes<kHeld>>) index = kHeld;
  };
  [&]<uint32_t... kHeld>(std::integer_sequence<uint32_t, kHeld...>) {
    (look_at(std::integral_constant<uint32_t, kHeld>{}), ...);
  }(std::make_integer_sequence<uint32_t, std::size(Held::kCodings)>{});
  return index;
}

}  // namespace detail

// held_indices()[i] is the index among the codings of Held of the scheme's coding i.
template <class Schema, class Held>
constexpr auto held_indices() {
  constexpr auto kAll = []<uint32_t... kIndex>(std::integer_sequence<uint32_t, kIndex...>) {
    return std::array{
        detail::index_in_held<Held, typename Schema::template Codes<kIndex>>(Schema::kCodings[kIndex])...};
  }(std::make_integer_sequence<uint32_t, std::size(Schema::kCodings)>{});
  static_assert(*std::max_element(kAll.begin(), kAll.end()) < std::size(Held::kCodings), "Held lacks a coding");
  return kAll;
}

}  // namespace tenon::published
