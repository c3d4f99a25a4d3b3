// This tests on the host how floats of 6 bits lie in words: no GPU is needed.
#include <gtest/gtest.h>

#include <bit>

#include "tenon/cuda/coded_weights.cuh"

namespace tenon::test {
namespace {

template <class SmallFloat>
void expect_codes_of_e4m3() {
  using Weights = cuda::SixBitFloats<SmallFloat>;
  for (uint32_t code = 0; code < 64; ++code) {
    EXPECT_EQ(Weights::narrowed(Weights::widened(code)), code);
    EXPECT_EQ((sdk::SmallFloat<4, 3>::value(Weights::widened(code)) * Weights::kUnit), SmallFloat::value(code)) << code;
  }
  typename Weights::Words taken{};
  for (uint32_t step = 0; step < 4; ++step) {
    for (uint32_t place = 0; place < 4; ++place) {
      typename Weights::Words all{};
      Weights::add(all, step, Weights::widened(63) << 8 * place);
      int bits = 0;
      for (uint32_t i = 0; i < 3; ++i) {
        bits += std::popcount(all.of[i]);
        EXPECT_EQ(all.of[i] & taken.of[i], 0) << step << place;
        taken.of[i] |= all.of[i];
      }
      EXPECT_EQ(bits, 6) << step << place;
      for (uint32_t code = 0; code < 64; ++code) {
        typename Weights::Words words{~all.of[0], ~all.of[1], ~all.of[2]};  // the bits of other codes do not matter
        Weights::add(words, step, Weights::widened(code) << 8 * place);
        EXPECT_EQ(Weights::quartet(words, step) >> 8 * place & 0xff, Weights::widened(code)) << code;
      }
    }
  }
}

TEST(SixBitFloats, LieAsCodesOfE4m3) {
  expect_codes_of_e4m3<sdk::SmallFloat<3, 2>>();
  expect_codes_of_e4m3<sdk::SmallFloat<2, 3>>();
}

}  // namespace
}  // namespace tenon::test
