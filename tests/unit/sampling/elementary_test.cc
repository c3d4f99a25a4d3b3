#include "tenon/sdk/cpu/elementary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace tenon::sdk::cpu {
namespace {

TEST(Elementary, LogIsCloseToTheLibrarys) {
  for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 9973) {
    const auto x = std::bit_cast<float>(bits);
    const double exact = std::log(static_cast<double>(x));
    ASSERT_NEAR(log(x), exact, 3e-7 * std::fabs(exact) + 1e-12) << x;
  }
  EXPECT_EQ(log(1.0F), 0.0F);
}

TEST(Elementary, ExpIsCloseToTheLibrarys) {
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(86.9F); bits += 9973) {
    const float x = -std::bit_cast<float>(bits);
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(exp_negative(x), exact, 3e-7 * exact) << x;
  }
  EXPECT_EQ(exp_negative(0.0F), 1.0F);
  EXPECT_EQ(exp_negative(-87.5F), 0.0F);
  EXPECT_EQ(exp_negative(-INFINITY), 0.0F);
}

}  // namespace
}  // namespace tenon::sdk::cpu
