// This tests on the host how floats of 6 bits lie in words: no GPU is needed.
#include <gtest/gtest.h>

#include <bit>

#include "tenon/cuda/coded_weights.cuh"

namespace tenon::test {
namespace {

// Calls f(k-step, second pair, odd) for the 16 codes of a row that share an upper word.
template <class F>
void each_place(const F& f) {
  for (uint32_t step = 0; step < 4; ++step) {
    for (uint32_t second = 0; second < 2; ++second) {
      for (uint32_t odd = 0; odd < 2; ++odd) f(step, second, odd);
    }
  }
}

template <class SmallFloat>
void expect_halves() {
  using Weights = cuda::SixBitFloats<SmallFloat>;
  uint32_t lower[2] = {}, upper = 0;  // these are the bits taken so far; lower: by 32 k
  each_place([&](uint32_t step, uint32_t second, uint32_t odd) {
    typename Weights::Words all{};
    Weights::add(all, step, second, odd, 63);
    EXPECT_EQ(std::popcount(all.lower), 4);
    EXPECT_EQ(std::popcount(all.upper), 2);
    EXPECT_EQ(all.lower & lower[step / 2], 0) << step << second << odd;
    EXPECT_EQ(all.upper & upper, 0) << step << second << odd;
    lower[step / 2] |= all.lower;
    upper |= all.upper;
    for (uint32_t code = 0; code < 64; ++code) {
      typename Weights::Words words{~all.lower, ~all.upper};  // the bits of other codes do not matter
      Weights::add(words, step, second, odd, code);
      EXPECT_EQ(Weights::halves(words, step, second) >> (16 * odd) & 0xffff, SmallFloat::half_bits(code)) << code;
    }
  });
}

TEST(SixBitFloats, OfAWordAreTheHalvesOfTheirCodes) {
  expect_halves<sdk::SmallFloat<3, 2>>();
  expect_halves<sdk::SmallFloat<2, 3>>();
}

}  // namespace
}  // namespace tenon::test
