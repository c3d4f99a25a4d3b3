// This multiplies rows of x in int8 with packed rows (packed_rows.h), by integer dot products. It is
// for sources that are compiled once for each instruction set (tenon_add_kernels; see vector.h):
// AVX-512 VNNI, AVX-VNNI, AVX2 or plain code.
//
// A scheme brings formats (PackedWeights, below) and makes a table of them, in a source of its own:
//
//   constexpr PackedFormat kFormats[] = {packed_format<MyWeights>()};
//   constinit const PackedTable TENON_ISA::kPacked = {kFormats, 1};
//
// A product of a row of x and a row of weights is always summed in the same order. For each 32 k in growing order:
//
//   1. The codes, less what the format subtracts from them, times x make an exact integer. Where a format has two
//      parts, either 16 k make one, and the sum of each times its part's scale is the integer.
//   2. That integer times (weight scale * activation scale) goes into the sum by fused multiply-add.
//   3. Where the format has minima, minimum * (activation scale * sum of x) goes into the sum, too.
//
// An example: 5 rows of x times a Q4_0 matrix of 4096 rows and 4096 k, under AVX2. The matrix is 256 groups of 16 rows.
// A group is 128 units, a unit has 32 k of the 16 rows: 32 bytes of scales and 256 bytes of codes of four bits.
// kSide is 8, so a group is gone through twice, for rows 0 to 7 and for rows 8 to 15, and kMostXRows is 4, so that
// happens for rows 0 to 3 of x together and then for row 4 alone. For one unit a tile loads 8 scales and 4 times
// 32 bytes of codes, which are 8 vectors of four codes a lane. Each of the 4 rows of x then takes 8 dot products, in
// which every lane gets the same four x, and has 8 integers, one for each row of weights.
//
// The naive twin is int8_activations_test.cc.
#pragma once

#include <concepts>

#include "tenon/sdk/cpu/row_kernels.h"
#include "tenon/sdk/cpu/vector.h"

namespace tenon::sdk::cpu {
namespace {

// kSide rows of a group are multiplied side by side, a lane each. A tile has kMostXRows rows of x at most, as registers
// allow.
#if defined(__AVX512VNNI__)
constexpr uint32_t kSide = 16, kMostXRows = 8;
#elif defined(__AVX2__)
constexpr uint32_t kSide = 8, kMostXRows = 4;
#else
constexpr uint32_t kSide = 16, kMostXRows = 1;
#endif
using RowFloats = Floats<kSide>;  // sums or scales of the rows
using RowInts = Ints<kSide>;      // their integers
using RowCodes = Codes<kSide>;    // four codes of each
static_assert(DotVectors<RowInts, RowCodes, RowFloats>);

// A packed block has 32 k of kSide rows of weights.
template <uint32_t Parts>
struct PackedBlock {
  RowFloats scale;
  RowFloats minimum;          // formats with minima have it
  RowInts part_scale[Parts];  // formats with two parts have them, one for each 16 k
  RowCodes code[8];           // (step): the codes of k 4 step to 4 step + 3
};

// This reads a unit of a group, for its rows from kSide * side on. `at` is where
// the group's sixteen rows begin in the unit.
struct PackedUnit {
  RowFloats halves(size_t at) const { return RowFloats::decode<TENON_F16>(bytes + at + 2 * kSide * side); }
  RowFloats floats(size_t at) const { return RowFloats::decode<TENON_F32>(bytes + at + 4 * kSide * side); }
  RowFloats bfloats(size_t at) const { return RowFloats::decode<TENON_BF16>(bytes + at + 2 * kSide * side); }
  RowFloats bytes_without_sign(size_t at) const { return RowFloats::decode<TENON_U8>(scales(at)); }
  RowInts bytes_with_sign(size_t at) const { return RowInts::load_i8(scales(at)); }
  RowCodes codes(size_t at) const { return RowCodes::load(bytes + at + 4 * kSide * side); }

  const uint8_t* bytes;
  uint32_t side;

 private:
  const uint8_t* scales(size_t at) const { return bytes + at + kSide * side; }
};

// A type with these members is a format of packed weights. A value of the type is one unit for kSide of its rows.
template <class W>
concept PackedWeights = requires(const PackedUnit& unit, const W w, uint32_t b) {
  W{unit};
  { uint32_t{W::kCode} };                                  // the code of its Packing
  { uint32_t{W::kUnitBytes} };                             // bytes of a unit of sixteen rows
  { uint32_t{W::kBlocks} };                                // how many times 32 k a unit has
  { uint32_t{W::kParts} };                                 // 1, or 2 where either 16 k have an integer scale
  { int{W::kOffset} };                                     // a code is its integer plus this: 0 or a power of 2
  { bool{W::kMinima} };                                    // a weight is scale * integer + minimum
  { w.block(b) } -> std::same_as<PackedBlock<W::kParts>>;  // the b-th 32 k of the unit
};

inline int32_t four_at(const int8_t* q) {
  int32_t four;
  memcpy(&four, q, sizeof(four));
  return four;
}

// Step 1 computes the exact integers of 32 k. `at` numbers the blocks of all rows of x.
template <PackedWeights F>
[[gnu::always_inline]] inline RowInts dot_block(const PackedBlock<F::kParts>& w, const Int8Rows& x, size_t at) {
  constexpr uint32_t kSteps = 8 / F::kParts;
  const int8_t* q = x.q + at * kInt8Block;
  RowInts dots[F::kParts];
#pragma GCC unroll 2
  for (uint32_t p = 0; p < F::kParts; ++p) {
    dots[p] = RowInts::begin<F::kOffset>(F::kParts == 2 ? x.negative16[2 * at + p] : x.negative32[at]);
#pragma GCC unroll 8
    for (uint32_t s = p * kSteps; s < (p + 1) * kSteps; ++s) {
      dots[p] = dot<F::kOffset>(dots[p], w.code[s], four_at(q + 4 * s));
    }
  }
  if constexpr (F::kParts == 2) return add(mul(dots[0], w.part_scale[0]), mul(dots[1], w.part_scale[1]));
  return dots[0];
}

// Steps 2 and 3: the integers go into the sums of kSide rows.
template <PackedWeights F>
[[gnu::always_inline]] inline void add_block(const PackedBlock<F::kParts>& w, const Int8Rows& x, size_t at,
                                             RowInts integers, RowFloats& sum) {
  sum = fma(to_floats(integers), mul(w.scale, RowFloats::all(x.scale[at])), sum);
  if constexpr (F::kMinima) sum = fma(w.minimum, RowFloats::all(x.sum[at]), sum);
}

// A tile is found by its first row of x, its group of rows of weights, and which kSide of these it has.
struct PackedTile {
  const uint8_t* group;
  uint32_t side, row;
};

// Multiplies R rows of x with kSide rows of weights.
template <PackedWeights F, uint32_t R>
inline void multiply_tile(const PackedProduct& t, PackedTile tile, float* y) {
  const uint32_t blocks = t.x.k / kInt8Block;
  RowFloats sum[R];
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) sum[r] = RowFloats::zeros();

  uint32_t b = 0;
  for (const uint8_t* unit = tile.group; b < blocks; unit += F::kUnitBytes) {
    if (tile.row == 0 && tile.side == 0) prefetch(unit + kAhead, F::kUnitBytes);
    const F weights{PackedUnit{unit, tile.side}};
    for (uint32_t i = 0; i < F::kBlocks; ++i, ++b) {
      const PackedBlock<F::kParts> w = weights.block(i);
#pragma GCC unroll 8
      for (uint32_t r = 0; r < R; ++r) {
        const size_t at = size_t{tile.row + r} * blocks + b;
        add_block<F>(w, t.x, at, dot_block<F>(w, t.x, at), sum[r]);
      }
    }
  }

#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) store(y + r * t.y_stride, sum[r]);
}

// Multiplies R rows of x at a time with all groups, from `row` on, as often as R
// rows are left; `row` becomes the next one.
template <PackedWeights F, uint32_t R>
inline void multiply_rows(const PackedProduct& t, uint32_t& row) {
  for (; row + R <= t.rows; row += R) {
    const uint8_t* group = t.weights;
    for (uint32_t c = 0; c < t.columns; c += kGroupRows, group += t.group_bytes) {
      for (uint32_t side = 0; side < kGroupRows / kSide; ++side) {
        multiply_tile<F, R>(t, {group, side, row}, t.y + row * t.y_stride + c + kSide * side);
      }
    }
  }
}

template <PackedWeights F>
void packed_product(const PackedProduct& t) {
  uint32_t row = 0;
  if constexpr (kMostXRows >= 8) multiply_rows<F, 8>(t, row);
  if constexpr (kMostXRows >= 4) {
    multiply_rows<F, 4>(t, row);
    multiply_rows<F, 2>(t, row);
  }
  multiply_rows<F, 1>(t, row);
}

template <PackedWeights F>
constexpr PackedFormat packed_format() {
  return {F::kCode, &packed_product<F>};
}

}  // namespace
}  // namespace tenon::sdk::cpu
