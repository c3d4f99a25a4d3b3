// The packed layout of a site's weights. Its matrices lie side by side in y; K = in_dim.
//
// A tile is 16 columns of y (rows of weights) by all of K, in natural order; or, when the site's two halves meet in
// SILU_MUL, 8 columns of the first half and their 8 partners of the second. A tile is cut along K into segments, each
// contiguous, [tile][segment]; K is filled up to whole segments with weights that multiply zeros, the last tile with rows
// that nobody reads.
//
// Inside a segment, weights lie in the order of mma.m16n8k16's A fragments: lane l = 4 g + t of a warp holds rows g and
// g + 8. Of each 32 k, t holds 8 t to 8 t + 7: the first four in one k-step (a0, a1: +0, +1; a2, a3: +2, +3), the other
// four in the next. So x stays in its natural order, and a lane reads 16 bytes of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon::cuda {

inline constexpr uint32_t kTileRows = 16;

// Which column of y a row of a tile is. Slot = 16 tile + row.
struct TileMap {
  uint32_t columns;  // of the product, before SILU_MUL
  uint32_t halves;   // 1: a tile has 8 columns of each half

  __host__ __device__ uint32_t tiles() const {
    return halves != 0 ? (columns / 2 + 7) / 8 : (columns + kTileRows - 1) / kTileRows;
  }
  __host__ __device__ uint32_t packed_row(uint32_t column) const {
    if (halves == 0) return column;
    const uint32_t half = columns / 2, second = column >= half ? 1 : 0, i = column - second * half;
    return i / 8 * kTileRows + second * 8 + i % 8;
  }
  // UINT32_MAX: a row that is there to fill the tile.
  __host__ __device__ uint32_t column(uint32_t packed_row) const {
    if (halves == 0) return packed_row < columns ? packed_row : UINT32_MAX;
    const uint32_t i = packed_row / kTileRows * 8 + packed_row % 8, second = packed_row % kTileRows / 8;
    return i < columns / 2 ? second * (columns / 2) + i : UINT32_MAX;
  }
};

template <class Format>
__host__ __device__ inline uint32_t segments_of(uint32_t k) {
  return (k + Format::kSegmentK - 1) / Format::kSegmentK;
}
// Of the tile that a packed row is in, the segment that k is in: its offset in the store.
template <class Format>
__host__ __device__ inline size_t segment_offset(uint32_t k_all, uint32_t packed_row, uint32_t k) {
  return (size_t{packed_row / kTileRows} * segments_of<Format>(k_all) + k / Format::kSegmentK) * Format::kSegmentBytes;
}

}  // namespace tenon::cuda
