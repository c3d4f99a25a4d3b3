// This tests the codecs of 8-bit floats and of 4-bit numbers: all of their numbers, and what is rounded to them. It
// also tests the rotation of heads.
#include "tenon/sdk/kv_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/hadamard.h"

namespace tenon::sdk {
namespace {

constexpr uint8_t kMostCode = 0x7e;

// Returns the number as the format says it: a sign, an exponent with the bias 7, and a fraction of 3 bits.
double number_of(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(KvF8, EveryCodeIsItsNumberAndIsFoundAgain) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) > kMostCode) continue;  // it is NaN
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

TEST(KvI4, EveryCodeIsItsNumberAndIsFoundAgain) {
  for (int code = 0; code < 16; ++code) {
    const auto c = static_cast<uint8_t>(code);
    EXPECT_EQ(KvI4::decode(c, 0.375F), (code - 8) * 0.375) << code;
    EXPECT_EQ(KvI4::encode(static_cast<float>(code - 8) * -0.375F, -0.375F), c) << code;
  }
}

TEST(KvI4, RoundsToTheNearestAndStaysInItsRange) {
  EXPECT_EQ(KvI4::encode(2.5F, 1), 10);
  EXPECT_EQ(KvI4::encode(3.5F, 1), 12);
  EXPECT_EQ(KvI4::encode(-2.5F, 1), 6);
  EXPECT_EQ(KvI4::encode(8, 1), 15);
  EXPECT_EQ(KvI4::encode(-9, 1), 0);
  EXPECT_EQ(KvI4::encode(std::nanf(""), 1), KvI4::kZero);
}

TEST(KvI4, TheScalePutsTheGreatestElementAtMinusEight) {
  for (const float most : {3.0F, -3.0F}) {
    const float scale = kv_scale(TENON_U8, TENON_F32, most);
    EXPECT_EQ(scale, most / -8) << most;
    EXPECT_EQ(KvI4::encode(most, scale), 0) << most;
  }
  const float row[] = {1, -2, 2, 0.5F};  // two are as great: the positive one counts
  EXPECT_EQ(cpu::most_of_row(row, 4), 2);
  EXPECT_EQ(kv_scale(TENON_U8, TENON_F32, 0), -1e-5F);
}

TEST(KvI4, ARowHasTwoElementsInAByteAndAZeroAfterAnOddOne) {
  const float row[] = {-8, 7, -1, 0, 3};
  std::byte bytes[3];
  cpu::store_row(TENON_U8, row, 5, bytes, 1);
  EXPECT_EQ(bytes[0], std::byte{0xf0});
  EXPECT_EQ(bytes[1], std::byte{0x87});
  EXPECT_EQ(bytes[2], std::byte{0x8b});
  float back[5];
  cpu::load_row(TENON_U8, bytes, 5, back, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(back[i], row[i]) << i;
  EXPECT_EQ(kv_row_bytes(TENON_U8, 5), 3U);
}

// It is compared with the matrix, in float64.
TEST(Hadamard, IsItsMatrixAndItsOwnInverse) {
  std::mt19937 random(1);
  for (const uint32_t dim : {1U, 2U, 8U, 12U, 19U, 64U, 80U, 96U, 128U, 256U}) {
    std::vector<float> x(dim);
    for (float& v : x) v = static_cast<float>(random() % 2001) / 1000.0F - 1;
    const std::vector<float> before = x;
    rotate_head(x.data(), dim);
    const uint32_t block = dim & (~dim + 1);
    for (uint32_t i = 0; i < dim; ++i) {
      double sum = 0;
      for (uint32_t j = 0; j < block; ++j) {
        const double v = before[i / block * block + j];
        sum += std::popcount(i % block & j) % 2 == 0 ? v : -v;
      }
      EXPECT_NEAR(x[i], sum / std::sqrt(block), 1e-6) << dim << ", " << i;
    }
    rotate_head(x.data(), dim);
    for (uint32_t i = 0; i < dim; ++i) EXPECT_NEAR(x[i], before[i], 1e-6) << dim << ", " << i;
  }
}

}  // namespace
}  // namespace tenon::sdk
