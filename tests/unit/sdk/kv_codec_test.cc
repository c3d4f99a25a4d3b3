// The codec of 8-bit floats: all of its numbers, and what is rounded to them.
#include "tenon/sdk/kv_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tenon::sdk {
namespace {

constexpr uint8_t kMostCode = 0x7e;

// As the format says it: a sign, an exponent with the bias 7, and a fraction of 3 bits.
double number_of(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(KvF8, EveryCodeIsItsNumberAndIsFoundAgain) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) > kMostCode) continue;  // NaN
    const auto c = static_cast<uint8_t>(code);
    EXPECT_EQ(KvF8::decode(c, 1), number_of(c)) << code;
    EXPECT_EQ(KvF8::decode(c, 0.375F), number_of(c) * 0.375) << code;
    EXPECT_EQ(KvF8::encode(static_cast<float>(number_of(c)), 1), c) << code;
  }
}

// Between two numbers the nearer one is taken, and in the middle the one with an even code.
TEST(KvF8, RoundsToTheNearest) {
  for (uint8_t code = 0; code < kMostCode; ++code) {
    const uint8_t next = static_cast<uint8_t>(code + 1), even = code % 2 == 0 ? code : next;
    const auto middle = static_cast<float>((number_of(code) + number_of(next)) / 2);
    EXPECT_EQ(KvF8::encode(middle, 1), even) << int{code};
    EXPECT_EQ(KvF8::encode(std::nextafter(middle, 0.0F), 1), code) << int{code};
    EXPECT_EQ(KvF8::encode(std::nextafter(middle, 1e9F), 1), next) << int{code};
    EXPECT_EQ(KvF8::encode(-middle, 1), even | 0x80) << int{code};
  }
}

TEST(KvF8, WhatItDoesNotHaveIsItsGreatestNumberOrZero) {
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float x : {448.5F, 464.0F, 1e30F, infinite}) {
    EXPECT_EQ(KvF8::encode(x, 1), kMostCode) << x;
    EXPECT_EQ(KvF8::encode(-x, 1), kMostCode | 0x80) << x;
  }
  EXPECT_EQ(KvF8::encode(std::nanf(""), 1), 0);
  EXPECT_EQ(KvF8::encode(1e-30F, 1), 0);
}

TEST(KvF8, AScalePutsTheGreatestMagnitudeAtTheGreatestNumber) {
  for (const float most : {0.01F, 1.0F, 37.0F, 5000.0F}) {
    const float scale = kv_scale(TENON_F8E4M3, TENON_F32, most);
    EXPECT_EQ(KvF8::encode(most, scale), kMostCode) << most;
    EXPECT_FLOAT_EQ(KvF8::decode(kMostCode, scale), most);
  }
}

}  // namespace
}  // namespace tenon::sdk
