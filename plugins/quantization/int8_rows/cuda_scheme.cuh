// Base of the schemes of definition.h on CUDA. Up to 16 rows are multiplied by integer_format.cuh, more by
// integer_gemm.cuh.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "definition.h"
// Before packed_scheme.cuh, whose kernels prepare x by what this declares.
#include "integer_format.cuh"
// After it.
#include "integer_gemm.cuh"
#include "tenon/cuda/load_rows.cuh"

namespace tenon::int8_rows {

// A row with a weight that is not finite gets a scale of NaN: nothing can be reported from here.
template <class Format>
__global__ void load_kernel(const cuda::LoadedRows rows, float* scales) {
  using Schema = typename Format::Schema;
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
  const float scale = finite ? weight_scale<Schema>(magnitude) : 1;
  if (threadIdx.x == 0) scales[rows.packed_row(blockIdx.x)] = finite ? scale : NAN;
  const uint32_t padded = cuda::segments_of<Format>(rows.k) * Format::kSegmentK;
  for (uint32_t i = 4 * threadIdx.x; i < padded; i += 4 * blockDim.x) {
    int q[4];
    for (uint32_t j = 0; j < 4; ++j) q[j] = weight_code<Schema>(finite ? rows.weight(blockIdx.x, i + j) : 0, scale);
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

// T: the class of the scheme.
template <class T, class SchemaOf>
class CudaScheme : public cuda::PackedScheme<T>, public SchemaOf {
 public:
  using Base = cuda::PackedScheme<T>;
  using Site = cuda::PackedSite;
  using Format = cuda::IntegerFormat<SchemaOf>;

  CudaScheme(const sdk::Params&, const sdk::Env& env) : Base(env) {}

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    need_width(s);
    return has_own_tensors<SchemaOf>(s.matrix[mat]) ? need_own_tensors<SchemaOf>(s, mat) : Base::source(s, mat);
  }
  static uint32_t code(std::span<const tenon_format>) { return 0; }
  static bool exact(const Site& site) {
    return std::all_of(site.source.begin(), site.source.end(), [](tenon_format f) { return f == rows::kInt8Rows; });
  }
  template <class Use>
  static void with_format(uint32_t, const Use& use) {
    use(Format{});
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void* queue) const {
    const cuda::LoadedRows loaded = cuda::loaded_rows(site, src, store[0]);
    float* scales = site.scales(store[1], src);
    if (site.source_of(src) == rows::kInt8Rows) {
      cuda::launch_load(&take_kernel<Format>, src, queue, loaded, scales,
                        static_cast<const float*>(src.tensor[rows::kScale].data));
    } else {
      cuda::launch_load(&load_kernel<Format>, src, queue, loaded, scales);
    }
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    if (rec.describe(call.y).dim[0] <= cuda::kMatvecRows) return Base::record(site, call, rec);
    cuda::IntegerGemmRecording<Format>(site, call, rec).record();
  }
};

}  // namespace tenon::int8_rows
