// A site's packed weights have this layout. The site's matrices lie side by side in y; K is the site's in_dim.
//
// A tile is 16 columns of y (16 rows of weights) by all of K. The columns come in natural order; or, when the site's
// two halves meet in SILU_MUL, a tile has 8 columns of the first half and their 8 partners of the second. A row of a
// tile, counted over all tiles, is a packed row: 16 * tile + row.
//
// A tile is cut along K into segments, each contiguous: [tile][segment]. K is filled up to whole segments with weights
// that multiply zeros, and the last tile with rows that nobody reads.
//
// Inside a segment, weights lie in the order of the A fragments of mma.cuh, so that a lane reads its own with one load:
// lane 4 g + t holds rows g and g + 8. Of each 32 k it holds k = 8t to 8t + 7, the first four in one k-step (a0, a1:
// 8t, 8t + 1; a2, a3: 8t + 2, 8t + 3) and the other four in the next. The k-steps of a fragment of x are permuted
// alike, so x stays in its natural order and a lane reads 16 bytes of it.
//
// Example: gate and up of Llama-2-7B, 2 x 11008 columns, K = 4096, in Int4Format<64> (128 k, 1152 bytes a segment).
// There are 22016 / 16 = 1376 tiles; tile 0 has columns 0..7 of gate and 0..7 of up; a tile has 4096 / 128 = 32
// segments; weight (column 11008 + 9 of y, k = 300) is row 9 of tile 1, in the tile's segment 300 / 128 = 2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon::cuda {

inline constexpr uint32_t kTileRows = 16;

// This maps columns of y to packed rows, and back.
struct TileMap {
  uint32_t columns;  // the product has so many, before SILU_MUL
  uint32_t halves;   // 1: a tile has 8 columns of each half

  __host__ __device__ uint32_t tiles() const {
    return halves != 0 ? (columns / 2 + 7) / 8 : (columns + kTileRows - 1) / kTileRows;
  }
  __host__ __device__ uint32_t packed_row(uint32_t column) const {
    if (halves == 0) return column;
    const uint32_t half = columns / 2, second = column >= half ? 1 : 0, i = column - second * half;
    return i / 8 * kTileRows + second * 8 + i % 8;
  }
  // Returns UINT32_MAX for a row that is there to fill the tile.
  __host__ __device__ uint32_t column(uint32_t packed_row) const {
    if (halves == 0) return packed_row < columns ? packed_row : UINT32_MAX;
    const uint32_t i = packed_row / kTileRows * 8 + packed_row % 8, second = packed_row % kTileRows / 8;
    return i < columns / 2 ? second * (columns / 2) + i : UINT32_MAX;
  }
};

// Returns how many segments a tile has. `k` is all of K.
template <class Format>
__host__ __device__ inline uint32_t segments_of(uint32_t k) {
  return (k + Format::kSegmentK - 1) / Format::kSegmentK;
}
// Returns the offset in the store of the segment that has weight k of a packed row. `k_all` is all of K.
template <class Format>
__host__ __device__ inline size_t segment_offset(uint32_t k_all, uint32_t packed_row, uint32_t k) {
  return (size_t{packed_row / kTileRows} * segments_of<Format>(k_all) + k / Format::kSegmentK) * Format::kSegmentBytes;
}

}  // namespace tenon::cuda
