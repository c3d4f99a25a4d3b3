// Tiles of queries, keys or values lie in shared memory as mma.sync reads them: rows of D elements of two bytes. Eight
// rows of a matrix lie in different banks, because the 16-byte pieces of a row are swizzled by the row's number or, if
// D is no multiple of 64, because rows are an odd number of pieces apart.
//
// Example: D = 128, row 5, piece 3 (elements 24 to 31) lies at byte 5 * 256 + (3 ^ 5) * 16 = 1376.
#pragma once

#include <cstdint>

namespace tenon::flash {

enum class Side { kKeys, kValues };

template <uint32_t D>
inline constexpr uint32_t kTileRowBytes = D % 64 == 0 ? D * 2 : D * 2 + 16;
// Returns the offset in a tile of the 16 bytes `piece` of `row`.
template <uint32_t D>
__device__ __forceinline__ uint32_t tile_offset(uint32_t row, uint32_t piece) {
  static_assert(D % 64 == 0 || D / 8 % 2 == 0);
  return row * kTileRowBytes<D> + ((D % 64 == 0 ? piece ^ (row & 7) : piece) << 4);
}

// Returns a lane's offset for load_matrices() (mma.cuh) of 16 rows by 16 columns of a tile, from row `row` and piece
// `piece` on: the four matrices are (rows 0-7, first piece), (8-15, first), (0-7, second), (8-15, second). So registers
// 0 to 3 are an A fragment; of a transposed load, registers 0, 1 and 2, 3 are B fragments of 8 columns each.
template <uint32_t D>
__device__ __forceinline__ uint32_t rows_first(uint32_t row, uint32_t piece) {
  const uint32_t lane = threadIdx.x % 32;
  return tile_offset<D>(row + lane % 16, piece + lane / 16);
}
// Returns the offset with the two matrices in the middle exchanged: (0-7, first), (0-7, second), (8-15, first), (8-15,
// second). Registers 0, 1 and 2, 3 are B fragments of 8 rows each.
template <uint32_t D>
__device__ __forceinline__ uint32_t pieces_first(uint32_t row, uint32_t piece) {
  const uint32_t lane = threadIdx.x % 32;
  return tile_offset<D>(row + lane % 8 + lane / 16 * 8, piece + lane / 8 % 2);
}

}  // namespace tenon::flash
