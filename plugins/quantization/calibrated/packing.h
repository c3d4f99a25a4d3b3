// This packs numbers of a few bits into streams of 32-bit words, as published forms have them.
#pragma once

#include <cstdint>

namespace tenon::calibrated {

// Puts a number of `bits` bits at bit `at` of words that stand `stride` words apart and are zero there.
inline void put_bits(uint32_t* words, uint64_t stride, uint64_t at, uint32_t bits, uint32_t value) {
  const uint64_t word = at / 32, shift = at % 32;
  words[word * stride] |= value << shift;
  if (shift + bits > 32) words[(word + 1) * stride] |= value >> (32 - shift);
}

}  // namespace tenon::calibrated
