// Rows between two products: the result of the first is nothing but x of the second, and both schemes have agreed on its format
// (x_format and y_format of tenon_linear). A format is a tenon_format, and may have kTiled or kTiled and kStaggered besides. The
// tensor is
//   f32, f16, bf16             (rows, columns)
//   f8e4m3                     (rows, columns + 128): after its codes a row has its scale, an f32, by which they are to be
//                              multiplied. Where rows begin at less than whole 128 bytes, cuBLASLt is up to a fifth slower
//   f16, bf16 | kTiled         (parts, columns / 8, rows of a part, 8), for steps of few rows on Hopper (tenon/cuda/tile_gemm.cuh)
//   f16 | kTiled | kStaggered  (parts, columns / 16, 2, rows of a part, 8): the second of each two octets holds sixteenths
// A tiled octet has what a core of the tensor cores takes of 32 columns: octet i of four has, of each 8 of them, 2 i and 2 i + 1.
// Rows that are not live hold anything.
#pragma once

#include <cstdint>

#include "tenon/sdk/recorder.h"

namespace tenon::sdk {

inline constexpr uint32_t kTiled = 1U << 16, kStaggered = 1U << 17;

constexpr tenon_format element_of(uint32_t link) {
  return static_cast<tenon_format>(link & 0xffff);
}
constexpr bool is_tiled(uint32_t link) {
  return (link & kTiled) != 0;
}
inline bool is_tiled(const tenon_tensor& t) {
  return t.rank > 2;
}
inline bool is_staggered(const tenon_tensor& t) {
  return t.rank > 4;
}

inline constexpr int64_t kScaleBytes = 128;  // at the end of a row of codes

// The rows of a part of a tiled tensor.
constexpr uint32_t tiled_part_rows(uint32_t rows) {
  constexpr uint32_t kOnePart = 128, kMost = 256;
  return rows <= kOnePart ? rows : rows <= kMost ? rows / 2 : kMost;
}
// Whether there is a tensor of so many rows and columns.
constexpr bool has_linked_rows(uint32_t link, uint32_t rows, int64_t columns) {
  if (is_tiled(link)) return rows % tiled_part_rows(rows) == 0 && columns % 64 == 0;
  return link != TENON_F8E4M3 || columns % 128 == 0;
}
inline tenon_tensor linked_rows(uint32_t link, uint32_t rows, int64_t columns) {
  const tenon_format element = element_of(link);
  const int64_t part = tiled_part_rows(rows), parts = rows / part;
  if ((link & kStaggered) != 0) return tensor(element, {parts, columns / 16, 2, part, 8});
  if (is_tiled(link)) return tensor(element, {parts, columns / 8, part, 8});
  return tensor(element, {rows, columns + (element == TENON_F8E4M3 ? kScaleBytes : 0)});
}

}  // namespace tenon::sdk
