// While a model is loaded, rows of a file's matrix lie in device memory, on their way into a packed store (packed.cuh).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "tenon/abi/quantization.h"
#include "tenon/cuda/error.h"
#include "tenon/cuda/packed_scheme.cuh"

namespace tenon::cuda {

struct LoadedRows {
  const void* data;     // the matrix's first tensor: (rows, k)
  tenon_format format;  // the format of data
  uint32_t k;
  uint32_t column;  // the first row is this column of y
  TileMap map;
  uint8_t* store;  // this is the packed store of the rows' expert

  __device__ uint32_t packed_row(uint32_t row) const { return map.packed_row(column + row); }
  // Returns weight i of a row that is stored in f32, f16 or bf16; 0 past the row's end.
  __device__ float weight(uint32_t row, uint32_t i) const {
    if (i >= k) return 0;
    const size_t at = size_t{row} * k + i;
    if (format == TENON_F32) return static_cast<const float*>(data)[at];
    if (format == TENON_F16) return __half2float(static_cast<const __half*>(data)[at]);
    return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  }
  // Returns the segment that weight i of a row goes to, and the place in it of the weights i..i+3.
  template <class F>
  __device__ uint8_t* segment(uint32_t row, uint32_t i) const {
    return store + segment_offset<F>(k, packed_row(row), i);
  }
  template <class F>
  __device__ uint8_t* quad(uint32_t row, uint32_t i) const {
    return segment<F>(row, i) + F::quad_offset(packed_row(row) % kTileRows, i);
  }
};

// Describes rows to a load kernel. Throws Failed on rows that the site does not have.
inline LoadedRows loaded_rows(const PackedSite& site, const tenon_rows& src, void* store) {
  const size_t mats = site.rows.size(), mat = src.mat % mats;
  if (src.mat >= mats * std::max(site.experts, 1U) || src.row0 + src.rows > site.rows[mat]) {
    throw sdk::Failed("rows " + std::to_string(src.row0) + " to " + std::to_string(src.row0 + src.rows) +
                      " of matrix " + std::to_string(src.mat) + " are not of this site");
  }
  return {src.tensor[0].data,
          site.source[mat],
          site.k,
          site.first[mat] + static_cast<uint32_t>(src.row0),
          site.map,
          static_cast<uint8_t*>(store) + site.expert_of(src) * site.weight_bytes};
}

inline constexpr uint32_t kLoadThreads = 256;

// Launches a kernel over the rows, a block each.
template <class... P, class... A>
void launch_load(void (*kernel)(P...), const tenon_rows& src, void* queue, const A&... args) {
  if (src.rows == 0) return;
  kernel<<<static_cast<uint32_t>(src.rows), kLoadThreads, 0, static_cast<cudaStream_t>(queue)>>>(args...);
  TENON_CUDA_CHECK(cudaGetLastError());
}

}  // namespace tenon::cuda
