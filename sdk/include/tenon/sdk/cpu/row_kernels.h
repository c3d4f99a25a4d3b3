// What a linear layer on the CPU is made of: kernels on rows of weights as they are stored, one table an instruction
// set.
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

// Elements of a row of k, rounded up to whole vectors.
constexpr size_t padded(size_t k) {
  return (k + kLanes - 1) / kLanes * kLanes;
}

struct VectorProduct {  // y[c] = x . row c
  const uint8_t* weights;
  size_t row_bytes;
  uint32_t columns, k;
  const float* x;
  float* y;
};
struct TileProduct {     // y[r * y_stride + c] = (x row r . unpacked row c) * scale[c]
  const float* weights;  // element (c, i) at c * w_stride + i; only k of a row are read
  size_t w_stride;
  const float* scale;  // nullptr: ones
  uint32_t columns, rows, k;
  const float* x;
  size_t x_stride;
  float* y;
  size_t y_stride;
};

// A way of storing a row of k weights. The codes are tenon_format where the row lies as in the file, and the plugin's
// own from kOwnFormats on.
inline constexpr uint32_t kOwnFormats = 1u << 16;
struct RowFormat {
  uint32_t code;
  void (*vector_product)(const VectorProduct&);
  // Writes padded(k) values, past k whatever (finite), and returns the row's scale.
  float (*unpack)(const uint8_t* row, uint32_t k, float* out);
};

// Products of rows of x in int8 (int8_activations.h) with rows of weights as stored; see int8_formats.h for the order.
inline constexpr uint32_t kInt8Block = 32;
struct Int8Product {  // y[r * y_stride + c]
  const uint8_t* weights;
  size_t row_bytes;
  uint32_t columns, rows, k;
  const int8_t* q;           // (rows, k)
  const float *scale, *sum;  // (rows, k / 32)
  float* y;
  size_t y_stride;
};
struct Int8Format {
  uint32_t code;
  void (*product)(const Int8Product&);
};
struct Int8Table {
  const Int8Format* formats;
  uint32_t n_formats;

  const Int8Format* find(uint32_t code) const {
    for (uint32_t i = 0; i < n_formats; ++i) {
      if (formats[i].code == code) return formats + i;
    }
    return nullptr;
  }
};

struct KernelTable {
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
