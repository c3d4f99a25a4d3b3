// These products of rows of x in 16 bits (Int16Rows) with packed rows use dot products of 8 or of 16 bits, so that
// nothing is unpacked to floats. They are for sources that are compiled once for each instruction set that has these. A
// scheme brings formats as for packed_products.h:
//
//   constexpr PackedFormat kFormats[] = {wide_format<MyWeights>()};
//
// WideWeights, below, says what a format has: it makes blocks of 32 k. Which block fits what weights:
//
//   PackedBlock<1>  codes of a byte. Each meets the high bytes of x and the low ones: 16 dot products.
//   WideBlock       codes of two bytes, 256 code + low: 32 dot products. ExactBlock is one whose sum stays below 2^31.
//   WordBlock       numbers of 16 bits, whose magnitude times that of x is below 2^26. They meet x as it is: 16 dot
//                   products. Codes that a table of 16 bits has are looked up once, where bytes take two.
//   ChosenBlock     two numbers in every four k. They meet the two x of their columns, which a shuffle chooses: 8 dot
//                   products.
//   HalvesBlock     codes of 4 bits in a byte, with a scale for either 16 k: 24 dot products.
//
// The naive twin is quantization_int16_test.cc.
//
// A product is always summed in the same order. For each 32 k in growing order an exact integer, below 2^31, goes into
// the sum as steps 2 and 3 of packed_products.h say. WideBlock has three: its scale has the 256, and low bytes times
// low ones, divided by 256, are added once all is in f32.
//
// A single row of x multiplies each block as it is made. For several, kBlocksAtOnce blocks are made first and
// then meet all rows, kMostWideRows at a time.
//
// An example: a row of x times a matrix of 4 bits in groups of 64, under AVX-512 VNNI. 32 k of 16 rows are four loads
// of 64 codes' pairs, 12 operations that make 8 vectors of codes, 16 dot products, and some 7 operations for the
// scales: 35 for 512 weights, where unpacking to floats takes 3 for 16.
#pragma once

#include <algorithm>
#include <type_traits>

#include "tenon/sdk/cpu/packed_products.h"

namespace tenon::sdk::cpu {
namespace {

// Registers allow this many rows of x at a time: each row has two sums of integers, or four in a
// WideBlock, of which half as many rows are taken.
#if defined(__AVX512VNNI__)
constexpr uint32_t kMostWideRows = 8;
#else
constexpr uint32_t kMostWideRows = 2;
#endif

using RowWords = Words<kSide>;
static_assert(WordVectors<RowInts, RowWords, RowCodes>);

// This is 32 k of kSide rows of weights in two bytes, which both have F::kOffset more than they stand for.
struct WideBlock : PackedBlock<1> {
  RowCodes low[8];  // (step), as code
};
struct ExactBlock : WideBlock {};

// A word block has 32 k of kSide rows of weights in 16 bits.
struct WordBlock {
  RowFloats scale, minimum;
  RowWords word[16];  // (step): two k, as x has them
};

// A chosen block has 32 k of kSide rows of which every four have two weights.
struct ChosenBlock {
  RowFloats scale, minimum;
  RowCodes place[8];  // (step): which bytes of four words of x are the two that are multiplied
  RowWords word[8];   // (step)
};

// A halves block has 32 k of kSide rows of weights, of which either 16 have a scale of
// their own besides. Their codes have 4 bits.
struct HalvesBlock : PackedBlock<1> {
  RowFloats half_scale[2];
};

// A type with these members is a format of packed weights for x in 16 bits. A value of the type is one unit
// for kSide of its rows. A format may have kRowScales = true besides: a group begins with an f32 for each
// row, which the row's sum is multiplied by.
template <class W>
concept WideWeights = requires(const PackedUnit& unit, const W w, uint32_t b) {
  W{unit};
  { uint32_t{W::kCode} };       // the code of its Packing
  { uint32_t{W::kUnitBytes} };  // bytes of a unit of sixteen rows
  { uint32_t{W::kBlocks} };     // how many times 32 k a unit has: 1, 2, 4 or 8
  { int{W::kOffset} };          // a code of a byte is its integer plus this: 0 or a power of 2
  { bool{W::kMinima} };         // a weight is scale * integer + minimum
  w.block(b);                   // the b-th 32 k of the unit
};

template <WideWeights F>
constexpr bool has_row_scales() {
  if constexpr (requires { F::kRowScales; }) return F::kRowScales;
  return false;
}

inline int32_t two_at(const int16_t* words) {
  int32_t two;
  memcpy(&two, words, sizeof(two));
  return two;
}

// These are R rows of x, from block `at` of all blocks of the rows on; the next row's are `stride` further on.
template <uint32_t R>
struct RowBlocks {
  const Int16Rows& x;
  size_t at, stride;

  size_t block(uint32_t r) const { return at + r * stride; }
  const int8_t* bytes(uint32_t r) const { return x.q + block(r) * 2 * kInt8Block; }
  const int16_t* words(uint32_t r) const { return x.words + block(r) * kInt8Block; }
};

// Multiplies the codes of a block, less Offset each, by the high bytes of R rows of x and by the low ones. Rows take
// turns, so that no dot product waits for the one before it.
template <int Offset, uint32_t R>
struct ByteDots {
  RowInts high[R], low[R];

  [[gnu::always_inline]] explicit ByteDots(const RowBlocks<R>& x) {
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) {
      const int32_t* negative = x.x.negative + 2 * x.block(r);
      high[r] = RowInts::begin<Offset>(negative[0]);
      low[r] = RowInts::begin<Offset>(negative[1]);
    }
  }
  [[gnu::always_inline]] void add_step(RowCodes code, const RowBlocks<R>& x, uint32_t s) {
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) {
      high[r] = dot<Offset>(high[r], code, four_at(x.bytes(r) + 4 * s));
      low[r] = dot<Offset>(low[r], code, four_at(x.bytes(r) + kInt8Block + 4 * s));
    }
  }
};

// Does the same with codes of two bytes: with the upper ones, and with the lower ones.
template <int Offset, uint32_t R>
struct TwoByteDots {
  ByteDots<Offset, R> high, low;

  [[gnu::always_inline]] TwoByteDots(const WideBlock& w, const RowBlocks<R>& x) : high(x), low(high) {
#pragma GCC unroll 8
    for (uint32_t s = 0; s < 8; ++s) {
      high.add_step(w.code[s], x, s);
      low.add_step(w.low[s], x, s);
    }
  }
};

// These make the sums of 32 k, one for each row of x.
template <int Offset, uint32_t R>
[[gnu::always_inline]] inline void dot_block(const PackedBlock<1>& w, const RowBlocks<R>& x, RowFloats (&sums)[R]) {
  ByteDots<Offset, R> d(x);
#pragma GCC unroll 8
  for (uint32_t s = 0; s < 8; ++s) d.add_step(w.code[s], x, s);
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) sums[r] = to_floats(add(raised<8>(d.high[r]), d.low[r]));
}
template <int Offset, uint32_t R>
[[gnu::always_inline]] inline void dot_block(const WideBlock& w, const RowBlocks<R>& x, RowFloats (&sums)[R]) {
  const TwoByteDots<Offset, R> d(w, x);
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) {
    const RowFloats whole = to_floats(add(raised<8>(d.high.high[r]), add(d.high.low[r], d.low.high[r])));
    sums[r] = fma(to_floats(d.low.low[r]), RowFloats::all(1.0F / 256), whole);
  }
}
template <int Offset, uint32_t R>
[[gnu::always_inline]] inline void dot_block(const ExactBlock& w, const RowBlocks<R>& x, RowFloats (&sums)[R]) {
  const TwoByteDots<Offset, R> d(w, x);
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) {
    const RowInts high = add(raised<8>(d.high.high[r]), add(d.high.low[r], d.low.high[r]));
    sums[r] = to_floats(add(raised<8>(high), d.low.low[r]));
  }
}
template <int, uint32_t R>
[[gnu::always_inline]] inline void dot_block(const WordBlock& w, const RowBlocks<R>& x, RowFloats (&sums)[R]) {
  RowInts even[R], odd[R];
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) even[r] = odd[r] = RowInts::begin<0>(0);
#pragma GCC unroll 8
  for (uint32_t s = 0; s < 16; s += 2) {
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) {
      even[r] = dot(even[r], w.word[s], two_at(x.words(r) + 2 * s));
      odd[r] = dot(odd[r], w.word[s + 1], two_at(x.words(r) + 2 * s + 2));
    }
  }
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) sums[r] = to_floats(add(even[r], odd[r]));
}
template <int, uint32_t R>
[[gnu::always_inline]] inline void dot_block(const ChosenBlock& w, const RowBlocks<R>& x, RowFloats (&sums)[R]) {
  RowInts sum[R];
#pragma GCC unroll 8
  for (RowInts& s : sum) s = RowInts::begin<0>(0);
#pragma GCC unroll 8
  for (uint32_t s = 0; s < 8; ++s) {
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) {
      sum[r] = dot(sum[r], w.word[s], bytes_at(RowWords::repeated(x.words(r) + 4 * s), w.place[s]));
    }
  }
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) sums[r] = to_floats(sum[r]);
}

// This has four times kOffset for each of kSide rows.
template <int kOffset>
struct OffsetCodes {
  uint8_t byte[4 * kSide];
  constexpr OffsetCodes() : byte{} {
    for (uint8_t& b : byte) b = kOffset;
  }
};
// Each half is exact in f32, too: below 2^24. What the codes have too much in the first one is a product of its own,
// and in the second what is left of the whole.
template <int Offset, uint32_t R>
[[gnu::always_inline]] inline void dot_block(const HalvesBlock& w, const RowBlocks<R>& x, RowFloats (&sums)[R]) {
  static constexpr OffsetCodes<Offset> kOffsets;
  const RowCodes offset = RowCodes::load(kOffsets.byte);
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) {
    const int32_t* negative = x.x.negative + 2 * x.block(r);
    RowInts high = RowInts::begin<0>(0), low = high, over_high = high, over_low = high;
    RowInts second_high = RowInts::begin<Offset>(negative[0]), second_low = RowInts::begin<Offset>(negative[1]);
#pragma GCC unroll 4
    for (uint32_t s = 0; s < 4; ++s) {
      const int8_t *first = x.bytes(r) + 4 * s, *second = first + 16;
      high = dot<Offset>(high, w.code[s], four_at(first));
      low = dot<Offset>(low, w.code[s], four_at(first + kInt8Block));
      over_high = dot<Offset>(over_high, offset, four_at(first));
      over_low = dot<Offset>(over_low, offset, four_at(first + kInt8Block));
      second_high = dot<Offset>(second_high, w.code[s + 4], four_at(second));
      second_low = dot<Offset>(second_low, w.code[s + 4], four_at(second + kInt8Block));
    }
    const RowInts over = add(raised<8>(over_high), over_low);
    const RowFloats first = sub(to_floats(add(raised<8>(high), low)), to_floats(over));
    const RowFloats second = to_floats(add(add(raised<8>(second_high), second_low), over));
    sums[r] = fma(first, w.half_scale[0], mul(second, w.half_scale[1]));
  }
}

template <int Offset, bool Minima, uint32_t R, class Block>
[[gnu::always_inline]] inline void add_block(const Block& w, const RowBlocks<R>& x, RowFloats (&sums)[R]) {
  RowFloats dots[R];
  dot_block<Offset>(w, x, dots);
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) {
    const size_t at = x.block(r);
    sums[r] = fma(dots[r], mul(w.scale, RowFloats::all(x.x.scale[at])), sums[r]);
    if constexpr (Minima) sums[r] = fma(w.minimum, RowFloats::all(x.x.sum[at]), sums[r]);
  }
}

// A tile is kSide rows of a group of weights.
struct WideTile {
  const uint8_t* units;
  uint32_t side;

  // The units are fetched once, before the group's first rows need them.
  template <WideWeights F>
  F unit(uint32_t i) const {
    const uint8_t* bytes = units + size_t{i} * F::kUnitBytes;
    if (side == 0) prefetch(bytes + kAhead, F::kUnitBytes);
    return F{PackedUnit{bytes, side}};
  }
};
constexpr uint32_t used_blocks(const Int16Rows& x) {
  return (x.k + kInt8Block - 1) / kInt8Block;
}

// Multiplies row `row` of x. Like multiply_many_rows() it is a function of its own, so
// that the loop has the registers to itself.
template <WideWeights F>
[[gnu::noinline]] RowFloats multiply_one_row(const WideTile& tile, const Int16Rows& x, uint32_t row) {
  RowFloats sum[1] = {RowFloats::zeros()};
  RowBlocks<1> blocks{x, size_t{row} * int16_blocks(x.k), 0};
  for (uint32_t unit = 0, b = 0; b < used_blocks(x); ++unit) {
    const F weights = tile.unit<F>(unit);
    for (uint32_t i = 0; i < F::kBlocks; ++i, ++b, ++blocks.at) {
      add_block<F::kOffset, F::kMinima>(weights.block(i), blocks, sum);
    }
  }
  return sum[0];
}

// This many blocks are whole units of any format.
constexpr uint32_t kBlocksAtOnce = kMostUnitK / kInt8Block;
constexpr uint32_t kTileRows = 48;

// Takes (count) blocks of weights that were made; they meet the blocks of a row of x from `first` on.
template <class Block>
struct BlockSpan {
  const Block* block;
  uint32_t first, count;
};

// Each R rows from `row` to before `rows` take the blocks in; `row` and `sums` go on
// to the rows that are left, fewer than R.
template <uint32_t R, int Offset, bool Minima, class Block>
inline void add_blocks(BlockSpan<Block> w, const Int16Rows& x, uint32_t& row, uint32_t rows, RowFloats*& sums) {
  for (; row + R <= rows; row += R, sums += R) {
    RowFloats sum[R];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) sum[r] = sums[r];
    RowBlocks<R> blocks{x, size_t{row} * int16_blocks(x.k) + w.first, int16_blocks(x.k)};
    for (uint32_t b = 0; b < w.count; ++b, ++blocks.at) add_block<Offset, Minima>(w.block[b], blocks, sum);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) sums[r] = sum[r];
  }
}
// Multiplies all rows from `row` to before `rows`. All formats of a block share this.
template <int Offset, bool Minima, class Block>
[[gnu::noinline]] void add_span(BlockSpan<Block> w, const Int16Rows& x, uint32_t row, uint32_t rows, RowFloats* sums) {
  const auto add_rows = [&]<uint32_t R>(std::integral_constant<uint32_t, R>) {
    add_blocks<R, Offset, Minima>(w, x, row, rows, sums);
  };
  constexpr uint32_t kMost = std::is_base_of_v<WideBlock, Block> ? kMostWideRows / 2 : kMostWideRows;
  if constexpr (kMost >= 8) add_rows(std::integral_constant<uint32_t, 8>{});
  if constexpr (kMost >= 4) add_rows(std::integral_constant<uint32_t, 4>{});
  if constexpr (kMost >= 2) add_rows(std::integral_constant<uint32_t, 2>{});
  add_rows(std::integral_constant<uint32_t, 1>{});
}

// Multiplies the rows of x from `row` to before `rows`, at most kTileRows.
template <WideWeights F>
[[gnu::noinline]] void multiply_many_rows(const WideTile& tile, const Int16Rows& x, uint32_t row, uint32_t rows,
                                          RowFloats* sums) {
  constexpr uint32_t kUnits = kBlocksAtOnce / F::kBlocks;
  using Block = decltype(tile.unit<F>(0).block(0));
  Block block[kBlocksAtOnce];
  std::fill_n(sums, rows - row, RowFloats::zeros());
  for (uint32_t first = 0; first < used_blocks(x); first += kBlocksAtOnce) {
    uint32_t count = 0;
    for (uint32_t u = 0; u < kUnits && first + count < used_blocks(x); ++u) {
      const F weights = tile.unit<F>(first / F::kBlocks + u);
      for (uint32_t i = 0; i < F::kBlocks; ++i, ++count) block[count] = weights.block(i);
    }
    add_span<F::kOffset, F::kMinima>(BlockSpan<Block>{block, first, count}, x, row, rows, sums);
  }
}

template <WideWeights F>
void wide_product(const WideProduct& t) {
  constexpr bool kScales = has_row_scales<F>();
  constexpr size_t kHeader = kScales ? kGroupRows * sizeof(float) : 0;
  const uint8_t* group = t.weights;
  for (uint32_t c = 0; c < t.columns; c += kGroupRows, group += t.group_bytes) {
    for (uint32_t side = 0; side < kGroupRows / kSide; ++side) {
      const WideTile tile{group + kHeader, side};
      const auto put = [&](uint32_t row, RowFloats sum) {
        if constexpr (kScales) sum = mul(sum, RowFloats::decode<TENON_F32>(group + side * kSide * sizeof(float)));
        store(t.y + row * t.y_stride + c + kSide * side, sum);
      };
      for (uint32_t row = 0; row < t.rows; row += kTileRows) {
        const uint32_t end = std::min(row + kTileRows, t.rows);
        if (end - row == 1) {
          put(row, multiply_one_row<F>(tile, t.x, row));
          continue;
        }
        RowFloats sums[kTileRows];
        multiply_many_rows<F>(tile, t.x, row, end, sums);
        for (uint32_t r = row; r < end; ++r) put(r, sums[r - row]);
      }
    }
  }
}

template <WideWeights F>
constexpr PackedFormat wide_format() {
  return {F::kCode, nullptr, &wide_product<F>};
}

}  // namespace
}  // namespace tenon::sdk::cpu
