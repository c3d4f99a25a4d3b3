// Codes of 1 to 8 bits lie in units of 32, of four bytes a bit. Codes of 8 bits are the unit's bytes. Others are cut
// into planes of 4, 2 and 1 bits, as many as it takes, the lowest bits in the widest plane. A plane of n bits has 4 n
// bytes: code i is in byte i % (4 n), shifted by n * (i / (4 n)). The host uses this and, with relaxed constexpr, CUDA.
//
// Example: a unit of 3 bits has 8 bytes of the lower two bits, codes 0, 8, 16 and 24 in the first byte, then 4 bytes of
// the upper bit, codes 0, 4, 8, ... 28 in the first byte.
#pragma once

#include <cstdint>

namespace tenon::sdk {

inline constexpr uint32_t kUnitCodes = 32;

constexpr uint32_t unit_bytes(uint32_t bits) {
  return 4 * bits;
}

namespace detail {

// Calls f(byte's offset, shift in the byte, first bit of the code, mask) for each piece of code i.
template <class F>
constexpr void each_plane(uint32_t bits, uint32_t i, const F& f) {
  if (bits == 8) return f(i, 0U, 0U, 255U);
  uint32_t begin = 0, bit = 0;
  for (uint32_t n = 4; n > 0; n /= 2) {
    if ((bits & n) == 0) continue;
    f(begin + i % (4 * n), i / (4 * n) * n, bit, (1U << n) - 1);
    begin += 4 * n;
    bit += n;
  }
}

}  // namespace detail

constexpr uint32_t code_in_unit(uint32_t bits, const uint8_t* unit, uint32_t i) {
  uint32_t code = 0;
  detail::each_plane(bits, i, [&](uint32_t byte, uint32_t shift, uint32_t bit, uint32_t mask) {
    code |= (static_cast<uint32_t>(unit[byte]) >> shift & mask) << bit;
  });
  return code;
}

// The unit has to be zero where code i goes.
constexpr void add_to_unit(uint32_t bits, uint32_t code, uint8_t* unit, uint32_t i) {
  detail::each_plane(bits, i, [&](uint32_t byte, uint32_t shift, uint32_t bit, uint32_t mask) {
    unit[byte] = static_cast<uint8_t>(unit[byte] | (code >> bit & mask) << shift);
  });
}

}  // namespace tenon::sdk
