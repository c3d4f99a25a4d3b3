// Conversions to and from halves and bf16 are held against the formats' definitions.
#include "tenon/sdk/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tenon::sdk {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint32_t bits(float f) {
  return std::bit_cast<uint32_t>(f);
}

// Returns a half's value by the definition of the format.
double half_value(uint32_t h) {
  const int exponent = (h >> 10) & 31, fraction = h & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Convert, ReadsEveryHalf) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = half_to_float(static_cast<uint16_t>(h));
    if ((h & 0x7fff) > 0x7c00) {
      ASSERT_TRUE(std::isnan(f)) << h;
      ASSERT_EQ(float_to_half(f), h | 0x200) << h;
      continue;
    }
    if ((h & 0x7fff) == 0x7c00) {
      ASSERT_EQ(f, (h & 0x8000) != 0 ? -kInfinity : kInfinity);
    } else {
      ASSERT_EQ(f, half_value(h)) << h;
    }
    ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0);
    ASSERT_EQ(float_to_half(f), h);
  }
}

// Between every two neighbours it takes the middle, and what is just below and above it.
TEST(Convert, RoundsToNearestEvenHalf) {
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const auto low = static_cast<uint16_t>(h), high = static_cast<uint16_t>(h + 1);
    const float next = high == 0x7c00 ? 65536.0f : half_to_float(high);
    const float middle = (half_to_float(low) + next) / 2;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), low) << h;
    ASSERT_EQ(float_to_half(middle), h % 2 == 0 ? low : high) << h;
    ASSERT_EQ(float_to_half(std::nextafter(middle, kInfinity)), high) << h;
    ASSERT_EQ(float_to_half(-middle), (h % 2 == 0 ? low : high) | 0x8000) << h;
  }
  EXPECT_EQ(float_to_half(1e30f), 0x7c00);
  EXPECT_EQ(float_to_half(1e-30f), 0);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Convert, RoundsToNearestEvenBfloat) {
  for (uint32_t b = 0; b < 0x7f80; ++b) {
    const auto low = static_cast<uint16_t>(b), high = static_cast<uint16_t>(b + 1);
    const float middle = std::bit_cast<float>((b << 16) + 0x8000);
    ASSERT_EQ(bits(bf16_to_float(low)), b << 16);
    ASSERT_EQ(float_to_bf16(bf16_to_float(low)), low);
    ASSERT_EQ(float_to_bf16(std::nextafter(middle, 0.0f)), low) << b;
    ASSERT_EQ(float_to_bf16(middle), b % 2 == 0 ? low : high) << b;
    ASSERT_EQ(float_to_bf16(std::nextafter(middle, kInfinity)), high) << b;
  }
  EXPECT_EQ(float_to_bf16(-kInfinity), 0xff80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace tenon::sdk
