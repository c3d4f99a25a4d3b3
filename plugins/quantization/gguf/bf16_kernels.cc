// This multiplies rows of x in bf16 by rows of weights in bf16, by dot products of pairs. It is compiled for AVX-512
// BF16 alone.
//
// A product of a row of x and a row of weights is always summed in the same order: lane l (of 16) takes the pairs i
// with i % 16 == l in growing order, missing pairs are zeros; the lanes fold in halves.
#include "kernels.h"
#include "tenon/sdk/cpu/vector.h"

namespace tenon::gguf {
namespace {

using namespace sdk::cpu;

void to_bf16(const float* x, uint32_t k, uint16_t* to) {
  for (uint32_t i = 0; i < k; i += kLanes) {
    const Floats16 v = k - i < kLanes ? Floats16::load_first(x + i, k - i) : Floats16::load(x + i);
    store_bf16(to + i, v);
  }
}

template <uint32_t R, uint32_t C>
inline void bf16_tile(const Bf16Product& t, uint32_t row, uint32_t column) {
  const uint16_t* x = t.x + row * t.x_stride;
  const uint8_t* w = t.weights + column * t.row_bytes;
  Floats16 acc[R * C];
#pragma GCC unroll 32
  for (uint32_t i = 0; i < R * C; ++i) acc[i] = Floats16::zeros();
  const auto add = [&](auto at, uint32_t i, uint32_t n) {
    Bf16Pairs a[C];
#pragma GCC unroll 8
    for (uint32_t c = 0; c < C; ++c) {
      const uint8_t* from = w + c * t.row_bytes + 2 * size_t{i};
      if constexpr (R == 1) prefetch(from + kAhead, 2 * Bf16Pairs::kCount);
      a[c] = at(from, n);
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) {
      const Bf16Pairs b = at(x + r * t.x_stride + i, n);
#pragma GCC unroll 8
      for (uint32_t c = 0; c < C; ++c) acc[r * C + c] = dot(acc[r * C + c], a[c], b);
    }
  };
  uint32_t i = 0;
  for (; i + Bf16Pairs::kCount <= t.k; i += Bf16Pairs::kCount)
    add([](const void* p, uint32_t) { return Bf16Pairs::load(p); }, i, Bf16Pairs::kCount);
  if (i < t.k) add(&Bf16Pairs::load_first, i, t.k - i);
  for (uint32_t r = 0; r < R; ++r) {
    float* y = t.y + (row + r) * t.y_stride + column;
    if constexpr (C == 4) {
      sum4(acc + r * C, y);
    } else {
      for (uint32_t c = 0; c < C; ++c) y[c] = sum(acc[r * C + c]);
    }
  }
}

template <uint32_t R>
inline void bf16_columns(const Bf16Product& t, uint32_t row) {
  uint32_t c = 0;
  if constexpr (R > 1) {
    for (; c + 4 <= t.columns; c += 4) bf16_tile<R, 4>(t, row, c);
  }
  for (; c < t.columns; ++c) bf16_tile<R, 1>(t, row, c);
}

void bf16_product(const Bf16Product& t) {
  uint32_t row = 0;
  for (; row + 6 <= t.rows; row += 6) bf16_columns<6>(t, row);
  for (; row + 3 <= t.rows; row += 3) bf16_columns<3>(t, row);
  for (; row + 2 <= t.rows; row += 2) bf16_columns<2>(t, row);
  for (; row < t.rows; ++row) bf16_columns<1>(t, row);
}

}  // namespace

constinit const Bf16Table TENON_ISA::kBf16 = {&to_bf16, &bf16_product};

}  // namespace tenon::gguf
