// A linear layer on the CPU is made of these: kernels that read rows of weights as they are stored.
// Each instruction set has a table of them.
//
// A product of a row of x and a row of weights is always summed in the same order, whatever the number of rows and
// columns around it and whatever the instruction set: weights are unpacked to f32; lane l (of 16) takes the elements i
// with i % 16 == l in growing order by fused multiply-add; missing elements of the last 16 count as zeros; the lanes
// fold in halves (8, 4, 2, 1); the sum is multiplied by the row's scale, which is 1 for most formats. So tables differ
// in speed only, and a row decoded alone has the bits of the same row in a prefill.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tenon/abi/types.h"

namespace tenon::sdk::cpu {

inline constexpr uint32_t kLanes = 16;

// Returns k rounded up to whole vectors.
constexpr size_t padded(size_t k) {
  return (k + kLanes - 1) / kLanes * kLanes;
}

// This computes y[c] = x . row c of the weights, as they are stored.
struct VectorProduct {
  const uint8_t* weights;  // row c at weights + c * row_bytes
  size_t row_bytes;
  uint32_t columns, k;
  const float* x;  // (k)
  float* y;        // (columns)
};
// This computes y[r * y_stride + c] = (row r of x . unpacked row c) * scale[c].
struct TileProduct {
  const float* weights;  // element (c, i) at c * w_stride + i; only k of a row are read
  size_t w_stride;
  const float* scale;  // (columns); nullptr: ones
  uint32_t columns, rows, k;
  const float* x;  // element (r, i) at r * x_stride + i
  size_t x_stride;
  float* y;
  size_t y_stride;
};

// This is a way of storing a row of k weights. The codes are tenon_format where the row lies as in the file,
// and the plugin's own from kOwnFormats on.
inline constexpr uint32_t kOwnFormats = 1u << 16;
struct RowFormat {
  uint32_t code;
  void (*vector_product)(const VectorProduct&);
  // Writes padded(k) values and returns the row's scale. The values past k may be any finite numbers.
  float (*unpack)(const uint8_t* row, uint32_t k, float* out);
};

// Integer products take rows of x in int8, in blocks of 32: see quantize_row() in row_ops.h.
inline constexpr uint32_t kInt8Block = 32;
struct Int8Rows {
  uint32_t k;
  const int8_t* q;                         // (rows, k)
  const float *scale, *sum;                // (rows, k / 32); sum: scale times the sum of the block's q
  const int32_t *negative32, *negative16;  // (rows, k / 32), (rows, k / 16): minus the sum of 32 q, of 16 q
};

// Integer products of greater precision take rows of x in 16 bits, where x is scale * (256 high + low). They come in
// blocks of 32, and after k there are zeros up to whole units of any format. See split_row() in row_ops.h.
inline constexpr uint32_t kMostUnitK = 256;
constexpr uint32_t int16_blocks(uint32_t k) {
  return (k + kMostUnitK - 1) / kMostUnitK * (kMostUnitK / kInt8Block);
}
struct Int16Rows {
  uint32_t k;
  const int8_t* q;           // (rows, blocks, 2, 32): high, low
  const float *scale, *sum;  // (rows, blocks); sum: scale times the sum of the block's 256 high + low
  const int32_t* negative;   // (rows, blocks, 2): minus the sum of high, of low
  const int16_t* words;      // (rows, blocks, 32): 256 high + low; see word_place()
};
// Returns where word k lies. Every four words lie in the order 0 2 1 3, because kernels unpack the even ones of four
// bytes of codes to 16 bits first, and then the odd ones.
constexpr uint32_t word_place(uint32_t k) {
  return (k & ~3U) | (k & 1) << 1 | (k >> 1 & 1);
}

// Rows of weights are packed in groups of sixteen: packed_rows.h says how, and
// packed_products.h in which order products are summed.
inline constexpr uint32_t kGroupRows = 16;
// This is how one format is packed; its functions run on any machine. A row has k weights in whole units (the last one
// may be filled up if rows of x are in 16 bits), and takes bytes_of_row() bytes of its group.
struct Packing {
  uint32_t code;  // the plugin's own, from kOwnFormats on, as PackedFormat::code
  uint32_t unit_k, unit_bytes;
  // pack() moves the weights of one unit, as the row has them before it is packed, into the group's unit. unpack()
  // reads them there and writes them as floats. `row` is 0 to 15.
  void (*pack)(const uint8_t* weights, uint32_t row, uint8_t* unit);
  void (*unpack)(const uint8_t* unit, uint32_t row, float* w);
  bool row_scales =
      false;  // true: a row begins with an f32, its weights' factor, and a group with the sixteen of its rows

  uint64_t header_bytes() const { return row_scales ? kGroupRows * sizeof(float) : 0; }  // a group's first bytes
  uint64_t units(uint64_t k) const { return (k + unit_k - 1) / unit_k; }
  uint64_t bytes_of_row(uint64_t k) const { return (header_bytes() + units(k) * unit_bytes) / kGroupRows; }
};
// A product is y[r * y_stride + c] = row r of x . row c of the weights. Columns are rounded up to whole groups.
template <class Rows>
struct ProductOfGroups {
  const uint8_t* weights;  // group g at weights + g * group_bytes
  size_t group_bytes;
  uint32_t columns, rows;
  Rows x;
  float* y;
  size_t y_stride;
};
using PackedProduct = ProductOfGroups<Int8Rows>;
using WideProduct = ProductOfGroups<Int16Rows>;
// A format has a product with rows in int8, in 16 bits, or both.
struct PackedFormat {
  uint32_t code;
  void (*product)(const PackedProduct&);
  void (*wide_product)(const WideProduct&) = nullptr;
};
struct PackedTable {
  const PackedFormat* formats;
  uint32_t n_formats;

  const PackedFormat* find(uint32_t code) const {
    for (uint32_t i = 0; i < n_formats; ++i) {
      if (formats[i].code == code) return formats + i;
    }
    return nullptr;
  }
};

// Only some instruction sets have dot products of bf16. Such a product is y[r * y_stride + c] = row r
// of x . row c of the weights, both in bf16.
struct Bf16Product {
  const uint8_t* weights;  // row c at weights + c * row_bytes
  size_t row_bytes;
  uint32_t columns, rows, k;
  const uint16_t* x;  // row r at x + r * x_stride
  size_t x_stride;
  float* y;
  size_t y_stride;
};
struct Bf16Table {
  void (*convert)(const float* x, uint32_t k, uint16_t* to);  // to the nearest, halves to even
  void (*product)(const Bf16Product&);
};

// A kernel writes one row of Int8Rows here.
struct Int8Row {
  int8_t* q;
  float *scale, *sum;
  int32_t *negative32, *negative16;
};
// A kernel writes one row of Int16Rows here.
struct Int16Row {
  int8_t* q;
  float *scale, *sum;
  int32_t* negative;
  int16_t* words;
};
// This has the work on rows of x and y beside products; see row_ops.h.
struct RowOps {
  void (*rms_norm)(const float* x, const float* weight, uint32_t n, float eps, float* y);
  void (*quantize)(const float* x, uint32_t k, const Int8Row& to);
  void (*silu_mul)(float* gate, const float* up, uint32_t n);  // gate = silu(gate) * up
  void (*split)(const float* x, uint32_t k, const Int16Row& to);
};

struct KernelTable {
  RowOps ops;
  void (*tile_product)(const TileProduct&);
  const RowFormat* formats;
  uint32_t n_formats;

  const RowFormat* find(uint32_t code) const {
    for (uint32_t i = 0; i < n_formats; ++i) {
      if (formats[i].code == code) return formats + i;
    }
    return nullptr;
  }
};

}  // namespace tenon::sdk::cpu
