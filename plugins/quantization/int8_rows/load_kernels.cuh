// These bring rows of weights into packed int8 with a scale each: quantized by a rule (Int8Rule
// of definition.h), or as they were stored.
#pragma once

#include <cfloat>
#include <cmath>

#include "definition.h"
#include "tenon/cuda/load_rows.cuh"

namespace tenon::int8_rows {

// A row with a weight that is not finite gets a scale of NaN: nothing can be reported from here.
template <class Format, Int8Rule Rule>
__global__ void load_kernel(const cuda::LoadedRows rows, float* scales) {
  __shared__ uint32_t of_row;
  if (threadIdx.x == 0) of_row = 0;
  __syncthreads();
  uint32_t largest = 0;  // the bits of magnitudes have their order, and NaN's are above infinity's
  for (uint32_t i = threadIdx.x; i < rows.k; i += blockDim.x) {
    largest = max(largest, __float_as_uint(rows.weight(blockIdx.x, i)) & 0x7fffffff);
  }
  atomicMax(&of_row, largest);
  __syncthreads();
  const float magnitude = __uint_as_float(of_row);
  const bool finite = magnitude <= FLT_MAX;
  const float scale = finite ? weight_scale<Rule>(magnitude) : 1;
  if (threadIdx.x == 0) scales[rows.packed_row(blockIdx.x)] = finite ? scale : NAN;
  const uint32_t padded = cuda::segments_of<Format>(rows.k) * Format::kSegmentK;
  for (uint32_t i = 4 * threadIdx.x; i < padded; i += 4 * blockDim.x) {
    int q[4];
    for (uint32_t j = 0; j < 4; ++j) q[j] = weight_code<Rule>(finite ? rows.weight(blockIdx.x, i + j) : 0, scale);
    Format::put(rows.quad<Format>(blockIdx.x, i), q);
  }
}

// This takes rows that were quantized before they were stored. stored: the scales of the rows.
template <class Format>
__global__ void take_kernel(const cuda::LoadedRows rows, float* scales, const float* stored) {
  const int8_t* row = static_cast<const int8_t*>(rows.data) + size_t{blockIdx.x} * rows.k;
  const float scale = stored[blockIdx.x];
  if (threadIdx.x == 0) scales[rows.packed_row(blockIdx.x)] = isfinite(scale) ? scale : NAN;
  const uint32_t padded = cuda::segments_of<Format>(rows.k) * Format::kSegmentK;
  for (uint32_t i = 4 * threadIdx.x; i < padded; i += 4 * blockDim.x) {
    int q[4];
    for (uint32_t j = 0; j < 4; ++j) q[j] = i + j < rows.k ? row[i + j] : 0;
    Format::put(rows.quad<Format>(blockIdx.x, i), q);
  }
}

}  // namespace tenon::int8_rows
