// A kernel that leaves rows for tensor cores (tenon/sdk/linked_rows.h) finds their places here.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tenon/sdk/linked_rows.h"

namespace tenon::cuda {

// Says in which order rows come or are left: row after row, or as in tenon/sdk/linked_rows.h.
enum class Tiled : uint32_t { kNo, kTiled, kStaggered };

inline Tiled order_of(const tenon_tensor& t) {
  if (!sdk::is_tiled(t)) return Tiled::kNo;
  return sdk::is_staggered(t) ? Tiled::kStaggered : Tiled::kTiled;
}

// This finds the places of a tiled tensor, row by row; `columns` counts those after a row's own, too.
class TiledRows {
 public:
  __device__ __forceinline__ TiledRows(void* tensor, uint32_t rows, uint32_t columns)
      : tensor_(static_cast<uint8_t*>(tensor)),
        band_rows_(sdk::tiled_band_rows(rows)),
        band_bytes_(size_t{columns} * band_rows_ * 2) {}
  // Returns the place of an octet of a row.
  __device__ __forceinline__ uint8_t* at(uint32_t row, uint32_t octet) const {
    return tensor_ + row / band_rows_ * band_bytes_ + (size_t{octet} * band_rows_ + row % band_rows_) * 16;
  }
  // Returns the place of the n-th number that follows a row of so many columns, before a norm.
  __device__ __forceinline__ float* number(uint32_t row, uint32_t columns, uint32_t n) const {
    return reinterpret_cast<float*>(at(row, columns / 8 + n / 4)) + n % 4;
  }
  // Goes on from the place of a row to that of the row eight further on; `in_band` is the row's number in its band.
  __device__ __forceinline__ void advance(uint8_t*& at, uint32_t& in_band) const {
    at += 8 * 16;
    in_band += 8;
    if (in_band < band_rows_) return;
    at += band_bytes_ - size_t{band_rows_} * 16;
    in_band -= band_rows_;
  }
  __device__ __forceinline__ uint32_t in_band(uint32_t row) const { return row % band_rows_; }
  // Goes on from the place of an octet of a row to that of a later one.
  __device__ __forceinline__ uint8_t* later(uint8_t* at, uint32_t octets) const {
    return at + size_t{octets} * band_rows_ * 16;
  }

 private:
  uint8_t* tensor_;
  uint32_t band_rows_;
  size_t band_bytes_;
};

// An octet's values are multiplied by this before they are stored.
__device__ __forceinline__ float octet_scale(Tiled order, uint32_t octet) {
  return order == Tiled::kStaggered && octet % 2 == 1 ? 0x1p-4F : 1;
}
// Returns v as a half holds it: too large a number for f16 becomes the largest. NaN stays NaN.
template <class H>
__device__ __forceinline__ float saturated(float v) {
  if constexpr (std::is_same_v<H, __half>) {
    asm("min.NaN.f32 %0, %0, 0f477fe000;" : "+f"(v));
    asm("max.NaN.f32 %0, %0, 0fc77fe000;" : "+f"(v));
  }
  return v;
}

}  // namespace tenon::cuda
