// Codes of 1 to 8 bits become bytes on their way from a file's words into a coding's units, eight at a time in a word of
// 64 bits. Words are little-endian, in files as on every machine that Tenon runs on.
//
// Example: three steps make 0x0807060504030201 of spread<4>(0x87654321). Each moves the upper half of a field's codes into
// a field of their own, so that the word is 0x0000876500004321 after the first one and 0x0087006500430021 after the second.
#pragma once

#include <cstdint>
#include <cstring>

#include "../coded/coding.h"
#include "tenon/sdk/packed_codes.h"

namespace tenon::published {

namespace detail {

// Returns a word whose lowest `bits` bits of each `width` bits are set.
constexpr uint64_t lowest_of_each(uint32_t bits, uint32_t width) {
  uint64_t all = (uint64_t{1} << bits) - 1;
  for (; width < 64; width *= 2) all |= all << width;
  return all;
}

template <uint32_t kBits, uint32_t kField>
constexpr uint64_t halve_fields(uint64_t codes) {
  constexpr uint32_t kHalf = kBits * kField / 8;  // half the codes of a field of 2 kField bits have so many bits
  constexpr uint64_t kLower = lowest_of_each(kHalf, 2 * kField);
  return (codes & kLower) | (codes >> kHalf & kLower) << kField;
}

// In each square of 2 kN rows and 2 kN bytes the upper right and the lower left quarter change places.
template <uint32_t kN>
void swap_quarters(uint64_t (&rows)[8]) {
  constexpr uint64_t kLeft = lowest_of_each(8 * kN, 16 * kN);
  for (uint32_t pair = 0; pair < 4; ++pair) {
    const uint32_t upper = pair / kN * 2 * kN + pair % kN, lower = upper + kN;
    const uint64_t change = (rows[upper] >> 8 * kN ^ rows[lower]) & kLeft;
    rows[upper] ^= change << 8 * kN;
    rows[lower] ^= change;
  }
}

}  // namespace detail

// Returns eight codes, which lie side by side from the lowest bit on, as eight bytes. What is above them is let be.
template <uint32_t kBits>
constexpr uint64_t spread(uint64_t codes) {
  static_assert(kBits >= 1 && kBits <= 8);
  codes = detail::halve_fields<kBits, 32>(codes);
  codes = detail::halve_fields<kBits, 16>(codes);
  return detail::halve_fields<kBits, 8>(codes);
}

// Makes bytes of n codes, which lie side by side from the lowest bit of `from` on.
template <uint32_t kBits>
void unpack_codes_of(const uint8_t* from, uint32_t n, uint8_t* to) {
  // Compilers make one load of this where there is one of that size.
  const auto next = [&from](uint32_t bytes) {
    uint64_t codes = 0;
    for (uint32_t i = 0; i < bytes; ++i) codes |= uint64_t{from[i]} << 8 * i;
    return codes;
  };
  for (; n >= 8; n -= 8, from += kBits, to += 8) {
    const uint64_t bytes = spread<kBits>(next(kBits));
    std::memcpy(to, &bytes, sizeof(bytes));
  }
  const uint64_t bytes = spread<kBits>(next((n * kBits + 7) / 8));
  std::memcpy(to, &bytes, n);
}
inline void unpack_codes(uint32_t bits, const void* from, uint32_t n, uint8_t* to) {
  coded::with_index<8>(bits - 1, [&]<uint32_t kIndex>(std::integral_constant<uint32_t, kIndex>) {
    unpack_codes_of<kIndex + 1>(static_cast<const uint8_t*>(from), n, to);
  });
}

// Swaps rows and columns of eight rows of eight bytes.
inline void transpose(uint64_t (&rows)[8]) {
  detail::swap_quarters<4>(rows);
  detail::swap_quarters<2>(rows);
  detail::swap_quarters<1>(rows);
}

// Makes a unit (tenon/sdk/packed_codes.h) of 32 codes in bytes, four bytes of it at a time.
template <uint32_t kBits>
void make_unit(const uint8_t* codes, uint8_t* unit) {
  const auto four = [&](uint32_t i) {
    uint32_t bytes;
    std::memcpy(&bytes, codes + i, sizeof(bytes));
    return bytes;
  };
  if constexpr (kBits == 8) {
    std::memcpy(unit, codes, sdk::kUnitCodes);
  } else {
    uint32_t bit = 0;
    for (uint32_t n = 4; n > 0; n /= 2) {
      if ((kBits & n) == 0) continue;
      const uint32_t mask = ((1U << n) - 1) * 0x01010101U;
      for (uint32_t byte = 0; byte < 4 * n; byte += 4, unit += 4) {
        uint32_t plane = 0;
        for (uint32_t i = 0; i < 8 / n; ++i) plane |= (four(byte + 4 * n * i) >> bit & mask) << n * i;
        std::memcpy(unit, &plane, sizeof(plane));
      }
      bit += n;
    }
  }
}

}  // namespace tenon::published
