// The products of row_kernels.h over any vectors (vector.h) and any row formats. For sources that are compiled once for
// each instruction set (tenon_add_kernels; see vector.h). A scheme brings formats (StoredRow, below) and makes a table:
//
//   constexpr RowFormat kFormats[] = {row_format<MyRow>()};
//   constinit const KernelTable TENON_ISA::kKernels = {kRowOps, &tile_product, kFormats, 1};
#pragma once

#include <concepts>

#include "tenon/sdk/cpu/row_kernels.h"
#include "tenon/sdk/cpu/row_ops.h"
#include "tenon/sdk/cpu/vector.h"

namespace tenon::sdk::cpu {
namespace {

// A way of storing a row: a header, then blocks of weights, one after the other.
//   kCode      the format's number in the table: RowFormat::code
//   kHeader    bytes before the first block
//   kElements  weights of a block, a multiple of 16; kBytes: its bytes
//   kColumns   rows that vector_product() goes through together, to hide each other's latency
//   scale(row) what the row's sum is multiplied with: 1 where blocks have their scales themselves
//   block(p, sink) calls sink(i, w) for every 16 weights of the block at p: w has weights 16 i to 16 i + 15
template <class F>
concept StoredRow = requires(const uint8_t* p) {
  { uint32_t{F::kCode} };
  { uint32_t{F::kHeader} };
  { uint32_t{F::kColumns} };
  { size_t{F::kBytes} };
  { F::scale(p) } -> std::same_as<float>;
  F::block(p, [](uint32_t, Floats16) {});
} && F::kElements % kLanes == 0;

// A row need not be whole blocks: some(p, n) gives the n < kElements weights of the last one.
template <class F>
concept Ragged = requires(const uint8_t* p) { F::some(p, 1u); };

// f(unit, weights) for every 16 weights of a row, the last ones filled up.
template <class F, class Sink>
inline void each_unit(const uint8_t* row, uint32_t k, Sink&& sink) {
  const uint8_t* p = row + F::kHeader;
  uint32_t i = 0;
  for (; i + F::kElements <= k; i += F::kElements, p += F::kBytes) {
    F::block(p, [&](uint32_t unit, Floats16 w) { sink(i / kLanes + unit, w); });
  }
  if constexpr (Ragged<F>) {
    if (i < k) sink(i / kLanes, F::some(p, k - i));
  } else {
    if (i < k) {
      F::block(p, [&](uint32_t unit, Floats16 w) {
        if (i + unit * kLanes < k) sink(i / kLanes + unit, w);
      });
    }
  }
}

template <class F>
float unpack(const uint8_t* row, uint32_t k, float* out) {
  each_unit<F>(row, k, [&](uint32_t unit, Floats16 w) { store(out + unit * kLanes, w); });
  return F::scale(row);
}

// C rows at once, and, of several, the C rows behind them on their way: hardware follows few rows at once.
template <class F, uint32_t C>
inline void vector_columns(const VectorProduct& v, uint32_t first) {
  const uint8_t* row[C];
  Floats16 acc[C];
  for (uint32_t c = 0; c < C; ++c) row[c] = v.weights + size_t{first + c} * v.row_bytes, acc[c] = Floats16::zeros();
  const uint32_t whole = v.k / F::kElements * F::kElements;
  size_t at = F::kHeader;
  for (uint32_t i = 0; i < whole; i += F::kElements, at += F::kBytes) {
    const float* x = v.x + i;
#pragma GCC unroll 8
    for (uint32_t c = 0; c < C; ++c) {
      for (size_t line = 0; C > 1 && line < F::kBytes; line += 64) prefetch(row[c] + at + line + C * v.row_bytes);
      F::block(row[c] + at,
               [&](uint32_t unit, Floats16 w) { acc[c] = fma(w, Floats16::load(x + unit * kLanes), acc[c]); });
    }
  }
  if (whole < v.k) {
    const float* x = v.x + whole;
    const uint32_t rest = v.k - whole;
    for (uint32_t c = 0; c < C; ++c) {
      const auto add = [&](uint32_t unit, Floats16 w) {
        const uint32_t from = unit * kLanes;
        if (from < rest) {
          acc[c] = fma(w, rest - from < kLanes ? Floats16::load_first(x + from, rest - from) : Floats16::load(x + from),
                       acc[c]);
        }
      };
      if constexpr (Ragged<F>) {
        add(0, F::some(row[c] + at, rest));
      } else {
        F::block(row[c] + at, add);
      }
    }
  }
  for (uint32_t c = 0; c < C; ++c) v.y[first + c] = sum(acc[c]) * F::scale(row[c]);
}

template <class F>
void vector_product(const VectorProduct& v) {
  uint32_t c = 0;
  for (; c + F::kColumns <= v.columns; c += F::kColumns) vector_columns<F, F::kColumns>(v, c);
  for (; c < v.columns; ++c) vector_columns<F, 1>(v, c);
}

// As many accumulators as there are registers, less a column of weights and a value of x.
#if defined(__AVX512F__)
constexpr uint32_t kTileRows = 6, kTileColumns = 4;
#else
constexpr uint32_t kTileRows = 2, kTileColumns = 3;
#endif

template <uint32_t R, uint32_t C>
inline void tile(const TileProduct& t, uint32_t row, uint32_t column) {
  const float* x = t.x + row * t.x_stride;
  const float* w = t.weights + column * t.w_stride;
  Floats16 acc[R * C];
#pragma GCC unroll 32
  for (uint32_t i = 0; i < R * C; ++i) acc[i] = Floats16::zeros();
  uint32_t i = 0;
  for (; i + kLanes <= t.k; i += kLanes) {
    Floats16 a[C];
#pragma GCC unroll 8
    for (uint32_t c = 0; c < C; ++c) a[c] = Floats16::load(w + c * t.w_stride + i);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) {
      const Floats16 b = Floats16::load(x + r * t.x_stride + i);
#pragma GCC unroll 8
      for (uint32_t c = 0; c < C; ++c) acc[r * C + c] = fma(a[c], b, acc[r * C + c]);
    }
  }
  if (i < t.k) {
    for (uint32_t r = 0; r < R; ++r) {
      const Floats16 b = Floats16::load_first(x + r * t.x_stride + i, t.k - i);
      for (uint32_t c = 0; c < C; ++c) {
        acc[r * C + c] = fma(Floats16::load_first(w + c * t.w_stride + i, t.k - i), b, acc[r * C + c]);
      }
    }
  }
  for (uint32_t r = 0; r < R; ++r) {
    float s[4];
    if constexpr (C == 4) {
      sum4(acc + r * C, s);
    } else {
      for (uint32_t c = 0; c < C; ++c) s[c] = sum(acc[r * C + c]);
    }
    float* y = t.y + (row + r) * t.y_stride + column;
    for (uint32_t c = 0; c < C; ++c) y[c] = t.scale != nullptr ? s[c] * t.scale[column + c] : s[c];
  }
}

template <uint32_t R>
inline void tile_columns(const TileProduct& t, uint32_t row) {
  uint32_t c = 0;
  for (; c + kTileColumns <= t.columns; c += kTileColumns) tile<R, kTileColumns>(t, row, c);
  for (; c < t.columns; ++c) tile<R, 1>(t, row, c);
}

template <uint32_t R>
inline void last_rows(const TileProduct& t, uint32_t row) {
  if constexpr (R > 0) {
    if (t.rows - row == R) return tile_columns<R>(t, row);
    last_rows<R - 1>(t, row);
  }
}

void tile_product(const TileProduct& t) {
  uint32_t row = 0;
  for (; row + kTileRows <= t.rows; row += kTileRows) tile_columns<kTileRows>(t, row);
  last_rows<kTileRows - 1>(t, row);
}

template <StoredRow F>
constexpr RowFormat row_format() {
  return {F::kCode, &vector_product<F>, &unpack<F>};
}

}  // namespace
}  // namespace tenon::sdk::cpu
