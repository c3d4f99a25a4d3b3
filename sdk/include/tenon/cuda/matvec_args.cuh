// The kernels of products with packed weights are given these: matvec.cuh, routed_matvec.cuh and tile_gemm.cuh.
#pragma once

#include <cstdint>

#include "tenon/cuda/packed.cuh"
#include "tenon/cuda/tiled_rows.cuh"

namespace tenon::cuda {

inline constexpr uint32_t kMatvecRows = 16;  // a product of matvec.cuh has at most so many rows of x

// A product is y (rows, columns) = epilogue(norm(x) (rows, k) W^T). The program
// keeps this struct, which has no pointers.
struct MatvecArgs {
  TileMap map;
  uint32_t k, rows;           // x has so many columns and rows
  uint32_t blocks;            // the grid has at most so many: the GPU's multiprocessors
  uint32_t stages;            // a warp's ring has at most so many
  uint32_t silu;              // 1: y = silu(first half) * second half; map.halves is 1 then, and there is no addend
  uint32_t prepared;          // 1: x comes from the product's prepare(); several rows need that, and one very long row
  uint32_t most_block_bytes;  // the GPU gives a block at most so many bytes of shared memory
  float eps;                  // RMSNorm's epsilon
  int64_t x_stride, y_stride, addend_stride;  // a row begins so many elements after the one before
  uint32_t experts;                           // the number of experts of a routed product; else 0
  uint32_t unpaired;                          // 1: x is unpaired (formats.cuh) from 5 rows on, else from 9 on
  uint32_t digits;  // 1: a single row of x is multiplied as digits where the format takes them
  // These are about links between products (tenon/sdk/linked_rows.h). No kernel but those of tile_gemm.cuh reads
  // them.
  uint32_t x_tiled;     // 1: x is tiled, as the product before left it
  uint32_t x_normed;    // 1: x is tiled, and the product before left it for the norm
  Tiled y_tiled;        // y is left like this for the product after
  Tiled normed;         // beside y, rows for the norm after it are left like this
  uint32_t own_panels;  // 1: each pair of blocks of tile_gemm.cuh has a panel of its own (cluster_gemm.cuh)
};
struct MatvecPointers {
  const uint8_t* weights;  // the packed store
  const float* scales;     // one scale a packed row, f32; nullptr where the format has none (kRowScales)
  const float* x;          // (rows, k) f32
  float* y;                // (rows, columns) f32, or tiled; with silu it has half of the columns
  const uint32_t* live;    // one number: so many rows are live, and only these are computed
  const float* norm;       // RMSNorm's weights, (k) f32; or nullptr
  const float* bias;       // (columns) f32; or nullptr
  const float* addend;     // (rows, columns) f32; or nullptr
  uint8_t* prepared;       // prepared_bytes() bytes if MatvecArgs::prepared; a routed product has them by group of rows
  const int32_t* routing;  // if the product is routed: the rows' experts or, if x is prepared, ExpertGroups
  // If MatvecArgs::normed says so: rows for the norm after the product are left here, and its weights, (columns) f32.
  uint8_t* normed;
  const float* normed_weights;
  const uint16_t* order;  // as RowSource has it; only matvec.cuh reads it, of formats that say kTakesOrder
};

}  // namespace tenon::cuda
