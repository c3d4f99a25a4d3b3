// The packed layout of a site's weights. Its matrices lie side by side in y; K = in_dim.
//
// A tile is 16 columns of y (rows of weights) by all of K, in natural order; or, when the site's two halves meet in
// SILU_MUL, 8 columns of the first half and their 8 partners of the second. A tile is cut along K into chunks, each
// contiguous, [tile][chunk]; K is filled up to whole chunks with weights that multiply zeros, the last tile with rows
// that nobody reads.
//
// Inside a chunk, weights lie in the order of mma.m16n8k16's A fragments: lane l = 4 g + t of a warp holds rows g and
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
  __host__ __device__ uint32_t slot(uint32_t column) const {
    if (halves == 0) return column;
    const uint32_t half = columns / 2, second = column >= half ? 1 : 0, i = column - second * half;
    return i / 8 * kTileRows + second * 8 + i % 8;
  }
  // UINT32_MAX: a row that is there to fill the tile.
  __host__ __device__ uint32_t column(uint32_t slot) const {
    if (halves == 0) return slot < columns ? slot : UINT32_MAX;
    const uint32_t i = slot / kTileRows * 8 + slot % 8, second = slot % kTileRows / 8;
    return i < columns / 2 ? second * (columns / 2) + i : UINT32_MAX;
  }
};

template <class Format>
__host__ __device__ inline uint32_t chunks_of(uint32_t k) {
  return (k + Format::kChunkK - 1) / Format::kChunkK;
}
// Of the tile that a slot is in, the chunk that k is in: its offset in the store.
template <class Format>
__host__ __device__ inline size_t chunk_offset(uint32_t k_all, uint32_t slot, uint32_t k) {
  return (size_t{slot / kTileRows} * chunks_of<Format>(k_all) + k / Format::kChunkK) * Format::kChunkBytes;
}

}  // namespace tenon::cuda
