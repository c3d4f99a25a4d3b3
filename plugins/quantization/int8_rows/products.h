// This multiplies rows of x in int8 by rows of int8 weights, as they lie in memory. It is for products.cc of a scheme's
// folder, which is compiled once for each instruction set: AVX-512 VNNI, AVX-VNNI, AVX2 or plain code.
//
// A product is an exact integer, so every instruction set and every tile has the same one: |w x| <= 128 * 127, and
// kMostWidth of them fit 32 bits. Then it is rounded to f32 once and multiplied by the product of both scales.
// vector_bytes.h says how an instruction set multiplies bytes.
//
// An example: 9 rows of x by 64 rows of weights of 4096 k under AVX-512. A tile is 6 rows of x by 4 of weights: 24 sums
// of 16 lanes. A step of 64 k loads 4 vectors of weights and 6 of x, and does 24 dot products. After 64 steps the lanes
// of four sums are added up together. Rows 6 and 7 of x make tiles of 2 by 4, row 8 tiles of 1 by 4.
//
// The naive twin is the loop in int64 of tests/conformance/int8_rows_test.cc.
#pragma once

#include "kernels.h"
#include "tenon/sdk/cpu/vector_bytes.h"

namespace tenon::int8_rows {
namespace {

using namespace sdk::cpu;

// A tile is kTileRows rows of x by kTileColumns rows of weights.
#if defined(__AVX512VNNI__)
constexpr uint32_t kTileRows = 6, kTileColumns = 4;
#elif defined(__AVX2__)
constexpr uint32_t kTileRows = 2, kTileColumns = 4;
#else
constexpr uint32_t kTileRows = 1, kTileColumns = 1;
#endif

inline float scale_at(const uint8_t* row) {
  float scale;
  memcpy(&scale, row, sizeof(scale));
  return scale;
}

// Multiplies R rows of x from `row` on by C of weights from `column` on. One row of x meets these one after the other,
// which reads them a third faster than side by side; more rows of x meet all C at once, which loads x once.
template <uint32_t R, uint32_t C>
inline void multiply_tile(const PackedProduct& t, uint32_t row, uint32_t column) {
  constexpr uint32_t kScaleBytes = 4, kAtOnce = R == 1 ? 1 : C;
  const uint32_t k = t.x.k, blocks = k / kInt8Block, rest = k % Bytes::kCount;
  const size_t row_bytes = t.group_bytes / kGroupRows;
  const uint8_t* w = t.weights + column * row_bytes;
  const int8_t* x = t.x.q + size_t{row} * k;
  ByteSum sum[R][C];
  const auto add = [&](auto load, uint32_t first, uint32_t i) {
    Bytes bytes[kAtOnce];
#pragma GCC unroll 4
    for (uint32_t c = 0; c < kAtOnce; ++c) {
      const uint8_t* from = w + (first + c) * row_bytes + kScaleBytes + i;
      if constexpr (R == 1) prefetch(from + kAhead, Bytes::kCount);
      bytes[c] = load(from);
    }
    const ByteWeights weights[4] = {ByteWeights(bytes[0]), ByteWeights(bytes[1 % kAtOnce]),
                                    ByteWeights(bytes[2 % kAtOnce]), ByteWeights(bytes[3 % kAtOnce])};
#pragma GCC unroll 6
    for (uint32_t r = 0; r < R; ++r) {
      const Bytes of_row = load(x + size_t{r} * k + i);
#pragma GCC unroll 4
      for (uint32_t c = 0; c < kAtOnce; ++c) sum[r][first + c].add(weights[c], of_row);
    }
  };
#pragma GCC unroll 4
  for (uint32_t first = 0; first < C; first += kAtOnce) {
    uint32_t i = 0;
    for (; i + Bytes::kCount <= k; i += Bytes::kCount) add([](const void* p) { return Bytes::load(p); }, first, i);
    if (rest != 0) add([&](const void* p) { return Bytes::load_first(p, rest); }, first, i);
  }

  float scale[C];
  for (uint32_t c = 0; c < C; ++c) scale[c] = scale_at(w + c * row_bytes);
#pragma GCC unroll 6
  for (uint32_t r = 0; r < R; ++r) {
    const size_t at = size_t{row + r} * blocks;
    store_scaled(sum[r], ByteWeights::kOffset * t.x.negative32[at], t.x.scale[at], scale,
                 t.y + (row + r) * t.y_stride + column);
  }
}

template <uint32_t R>
inline void multiply_rows(const PackedProduct& t, uint32_t row) {
  uint32_t c = 0;
  for (; c + kTileColumns <= t.columns; c += kTileColumns) multiply_tile<R, kTileColumns>(t, row, c);
  for (; c < t.columns; ++c) multiply_tile<R, 1>(t, row, c);
}

// The row formats of row_kernels.h know rows packed sixteen side by side; here a row is a sixteenth of a group's bytes.
void product(const PackedProduct& t) {
  uint32_t row = 0;
  for (; row + kTileRows <= t.rows; row += kTileRows) multiply_rows<kTileRows>(t, row);
  if constexpr (kTileRows > 2) {
    for (; row + 2 <= t.rows; row += 2) multiply_rows<2>(t, row);
  }
  for (; row < t.rows; ++row) multiply_rows<1>(t, row);
}

constexpr PackedFormat kProductFormats[] = {{kInt8Row, &product}};

}  // namespace
}  // namespace tenon::int8_rows
