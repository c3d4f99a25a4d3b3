// These are the products of row_kernels.h over any vectors (vector.h) and any row formats. They are for
// sources that are compiled once for each instruction set (tenon_add_kernels; see vector.h). A scheme brings
// formats (StoredRow, below) and makes a table:
//
//   constexpr RowFormat kFormats[] = {row_format<MyRow>()};
//   constinit const KernelTable TENON_ISA::kKernels = {kRowOps, &tile_product, kFormats, 1};
//
// An example: 7 rows of x times 64 unpacked columns of 4096 k, under AVX-512. A tile is 6 rows of x by 4 columns: 24
// accumulators of 16 lanes, which with 4 vectors of weights and one of x are 29 of 32 registers. A step of 16 k loads
// these 5 vectors and does 24 multiply-adds with each of 6 vectors of x. After 256 steps the lanes of 4 accumulators
// are folded together, and there are 6 by 4 numbers of y. 16 tiles make the first 6 rows; tiles of 1 row by 4 columns
// make the seventh. The naive twin is row_kernels_test.cc.
#pragma once

#include <concepts>

#include "tenon/sdk/cpu/row_kernels.h"
#include "tenon/sdk/cpu/row_ops.h"
#include "tenon/sdk/cpu/vector.h"

namespace tenon::sdk::cpu {
namespace {

// A format's block() calls such a sink with every 16 weights.
struct AnySink {
  void operator()(uint32_t, Floats16) const {}
};

// A format stores a row so: a header, then blocks of weights, one after the other.
template <class F>
concept StoredRow = requires(const uint8_t* p) {
  { uint32_t{F::kCode} };                  // the format's number in the table: RowFormat::code
  { uint32_t{F::kHeader} };                // bytes before the first block
  { uint32_t{F::kElements} };              // weights of a block, a multiple of 16
  { size_t{F::kBytes} };                   // bytes of a block
  { uint32_t{F::kColumns} };               // rows that vector_product() goes through together, to hide latency
  { F::scale(p) } -> std::same_as<float>;  // the row's sum is multiplied by it; 1 where blocks have scales
  {
    F::block(p, AnySink())
  } -> std::same_as<void>;  // sink(i, w) for every 16 weights of the block at p: 16 i to 16 i + 15
} && F::kElements % kLanes == 0;

// A row need not be whole blocks: the n < kElements weights of the last one are followed by zeros.
template <class F>
concept Ragged = requires(const uint8_t* p) {
  { F::some(p, 1U) } -> std::same_as<Floats16>;
};

// The last block of a row may have fewer bytes than others: it ends with the unit of its last weight.
template <class F>
concept ShortLast = requires(const uint8_t* p) {
  { F::last_block(p, 1U, AnySink()) } -> std::same_as<void>;
};

// Calls sink as F::block() does, for the last block of a row, which has n < kElements weights.
template <StoredRow F, class Sink>
inline void last_block(const uint8_t* p, uint32_t n, Sink&& sink) {
  if constexpr (Ragged<F>) {
    sink(0, F::some(p, n));
  } else if constexpr (ShortLast<F>) {
    F::last_block(p, n, sink);
  } else {
    F::block(p, sink);
  }
}

// Calls sink(unit, weights) for every 16 weights of a row; the last ones are filled up.
template <StoredRow F, class Sink>
inline void each_unit(const uint8_t* row, uint32_t k, Sink&& sink) {
  const uint8_t* p = row + F::kHeader;
  uint32_t i = 0;
  for (; i + F::kElements <= k; i += F::kElements, p += F::kBytes) {
    F::block(p, [&](uint32_t unit, Floats16 w) { sink(i / kLanes + unit, w); });
  }
  if (i < k) {
    last_block<F>(p, k - i, [&](uint32_t unit, Floats16 w) {
      if (i + unit * kLanes < k) sink(i / kLanes + unit, w);
    });
  }
}

template <StoredRow F>
float unpack(const uint8_t* row, uint32_t k, float* out) {
  each_unit<F>(row, k, [&](uint32_t unit, Floats16 w) { store(out + unit * kLanes, w); });
  return F::scale(row);
}

// Computes columns [first, first + C) at once. Their rows lie one after the other, and memory is fetched in that order:
// C blocks of one row while a block of each row is multiplied. So memory sees one stream, whatever C is, which is
// faster than C. A block is fetched when kAhead bytes of the stream or more are still to be multiplied before it.
template <StoredRow F, uint32_t C>
inline void vector_columns(const VectorProduct& v, uint32_t first) {
  const uint8_t* row[C];
  Floats16 acc[C];  // (columns C, lanes 16)
  for (uint32_t c = 0; c < C; ++c) {
    row[c] = v.weights + size_t{first + c} * v.row_bytes;
    acc[c] = Floats16::zeros();
  }

  // This multiplies whole blocks.
  const uint32_t whole = v.k / F::kElements * F::kElements;
  const uint8_t* ahead = row[0] + (C - 1) * v.row_bytes + kAhead;
  size_t at = F::kHeader;
  for (uint32_t i = 0; i < whole; i += F::kElements, at += F::kBytes) {
    const float* x = v.x + i;
    prefetch(ahead + C * at, C * F::kBytes);
#pragma GCC unroll 8
    for (uint32_t c = 0; c < C; ++c) {
      F::block(row[c] + at,
               [&](uint32_t unit, Floats16 w) { acc[c] = fma(w, Floats16::load(x + unit * kLanes), acc[c]); });
    }
  }

  // These are the rows that are left.
  if (whole < v.k) {
    const float* x = v.x + whole;
    const uint32_t rest = v.k - whole;
    for (uint32_t c = 0; c < C; ++c) {
      const auto add = [&](uint32_t unit, Floats16 w) {
        const uint32_t from = unit * kLanes;
        if (from >= rest) return;
        const bool partial = rest - from < kLanes;
        acc[c] = fma(w, partial ? Floats16::load_first(x + from, rest - from) : Floats16::load(x + from), acc[c]);
      };
      last_block<F>(row[c] + at, rest, add);
    }
  }

  for (uint32_t c = 0; c < C; ++c) v.y[first + c] = sum(acc[c]) * F::scale(row[c]);
}

template <StoredRow F>
void vector_product(const VectorProduct& v) {
  uint32_t c = 0;
  for (; c + F::kColumns <= v.columns; c += F::kColumns) vector_columns<F, F::kColumns>(v, c);
  for (; c < v.columns; ++c) vector_columns<F, 1>(v, c);
}

// Accumulators take all registers but those for a column of weights and a vector of x.
#if defined(__AVX512F__)
constexpr uint32_t kTileRows = 6, kTileColumns = 4;
#else
constexpr uint32_t kTileRows = 2, kTileColumns = 3;
#endif

// Adds the last k, which are fewer than a vector.
template <uint32_t R, uint32_t C>
inline void add_rest(const TileProduct& t, const float* x, const float* w, uint32_t k, Floats16* acc) {
  for (uint32_t r = 0; r < R; ++r) {
    const Floats16 b = Floats16::load_first(x + r * t.x_stride, k);
    for (uint32_t c = 0; c < C; ++c) {
      acc[r * C + c] = fma(Floats16::load_first(w + c * t.w_stride, k), b, acc[r * C + c]);
    }
  }
}

// Makes y of R rows from `row` on and C columns from `column` on.
template <uint32_t R, uint32_t C>
inline void multiply_tile(const TileProduct& t, uint32_t row, uint32_t column) {
  const float* x = t.x + row * t.x_stride;
  const float* w = t.weights + column * t.w_stride;
  Floats16 acc[R * C];  // (rows R, columns C)
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
  if (i < t.k) add_rest<R, C>(t, x + i, w + i, t.k - i, acc);

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
  for (; c + kTileColumns <= t.columns; c += kTileColumns) multiply_tile<R, kTileColumns>(t, row, c);
  for (; c < t.columns; ++c) multiply_tile<R, 1>(t, row, c);
}

// Multiplies the R or fewer rows that are left.
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
