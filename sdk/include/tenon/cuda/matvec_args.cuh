// The kernels of products with packed weights are given these: matvec.cuh, routed_matvec.cuh and tile_gemm.cuh.
#pragma once

#include <cstdint>

#include "tenon/cuda/packed.cuh"

namespace tenon::cuda {

inline constexpr uint32_t kMatvecRows = 16;  // of x, at most, in a product of matvec.cuh

// How a product leaves y.
enum class Tiled : uint32_t { kNo, kTiled, kStaggered };

// A plain struct that is kept in the program. y (rows, columns) = epilogue(norm(x) (rows, k) W^T).
struct MatvecArgs {
  TileMap map;
  uint32_t k, rows;
  uint32_t blocks;            // of the grid, at most: the GPU's multiprocessors
  uint32_t stages;            // of a warp's ring, at most
  uint32_t silu;              // 1: y = silu(first half) * second half; map.halves is 1 then, and there is no addend
  uint32_t prepared;          // 1: x comes from the product's prepare(); several rows need that, and one very long row
  uint32_t most_block_bytes;  // of shared memory that the GPU gives a block
  float eps;                  // of the norm
  int64_t x_stride, y_stride, addend_stride;  // from row to row, in elements
  uint32_t experts;                           // of a routed product; else 0
  uint32_t unpaired;                          // 1: x is unpaired (formats.cuh) from 5 rows on, else from 9 on
  // Of tile_gemm.cuh: whether x comes as a product before left it, and y is left for one (tenon/sdk/linked_rows.h).
  uint32_t x_tiled;
  Tiled y_tiled;
};
struct MatvecPointers {
  const uint8_t* weights;  // the packed store
  const float* scales;     // of the packed rows, f32; Int8Format only
  const float* x;          // (rows, k) f32
  float* y;                // (rows, columns) f32, or tiled; half of the columns with silu
  const uint32_t* live;    // one number: so many rows are computed
  const float* norm;       // RMSNorm's weights, (k) f32; or nullptr
  const float* bias;       // (columns) f32; or nullptr
  const float* addend;     // (rows, columns) f32; or nullptr
  uint8_t* prepared;       // prepared_bytes() of the product, if MatvecArgs::prepared; if routed, by group of rows
  const int32_t* routing;  // of a routed product: the experts of the rows or, of prepared rows, ExpertGroups
};

}  // namespace tenon::cuda
