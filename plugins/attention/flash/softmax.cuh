// This is the arithmetic of an online softmax (Milakov and Gimelshein, arXiv:1805.02867), in units of log2.
#pragma once

#include <cstdint>

namespace tenon::flash {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kNothing = -INFINITY;  // no scores have this maximum, nor have scores that are NaN
inline constexpr float kNoNumber = NAN;       // a row sees itself, so that this is what has no maximum

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns what a learned sink adds to the sum of a head's weights, which are those of scores up to `top`: it weighs no
// value. sinks: the logits by head; nullptr if there are none.
__device__ __forceinline__ float sink_weight(const float* sinks, uint32_t head, float top) {
  return sinks == nullptr ? 0 : exp2_approx(sinks[head] * kLog2E - top);
}

// Makes scores, in units of log2, of the products of queries and keys.
struct ScoreScale {
  float factor, cap;  // cap 0: there is no softcap
  __device__ float operator()(float x) const {
    if (cap == 0) return x * factor;
    const float e = exp2_approx(2 * kLog2E * factor * x);  // it is e^2y in tanh(y) = 1 - 2 / (exp(2y) + 1)
    return cap * (1 - __fdividef(2, e + 1));
  }
  // Sums of several mma.
  template <uint32_t kSums>
  __device__ void operator()(float (&x)[kSums][4]) const {
    if (cap == 0) {
#pragma unroll
      for (uint32_t i = 0; i < kSums * 4; ++i) x[i / 4][i % 4] *= factor;
    } else {
      for (uint32_t i = 0; i < kSums * 4; ++i) x[i / 4][i % 4] = (*this)(x[i / 4][i % 4]);
    }
  }
  template <uint32_t kTiles, uint32_t kSums>
  __device__ void operator()(float (&x)[kTiles][kSums][4]) const {
#pragma unroll
    for (auto& of_tile : x) (*this)(of_tile);
  }
};
__device__ __forceinline__ ScoreScale score_scale(float scale, float softcap) {
  return softcap == 0 ? ScoreScale{scale * kLog2E, 0} : ScoreScale{scale / softcap, softcap * kLog2E};
}

}  // namespace tenon::flash
