#include <algorithm>
#include <cfloat>
#include <cmath>

#include "../rows/stored_rows.h"
#include "schema.h"
#include "tenon/cuda/load_rows.cuh"

namespace tenon::int8wo {
namespace {

using Format = cuda::Int8Format<>;

// A row with a weight that is not finite gets a scale of NaN: nothing can be reported from here.
__global__ void load_kernel(const cuda::LoadedRows rows, float* scales) {
  __shared__ float part[cuda::kLoadThreads / 32];
  float largest = 0;
  bool bad = false;
  for (uint32_t i = threadIdx.x; i < rows.k; i += blockDim.x) {
    const float w = fabsf(rows.weight(blockIdx.x, i));
    largest = fmaxf(largest, w);
    bad |= !(w <= FLT_MAX);
  }
  for (int d = 16; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, d));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = largest;
  bad = __syncthreads_or(bad) != 0;
  for (const float p : part) largest = fmaxf(largest, p);
  const float scale = fmaxf(largest / 127.5F, FLT_EPSILON);
  if (threadIdx.x == 0) scales[rows.packed_row(blockIdx.x)] = bad ? NAN : scale;
  const uint32_t padded = cuda::segments_of<Format>(rows.k) * Format::kSegmentK;
  for (uint32_t i = 4 * threadIdx.x; i < padded; i += 4 * blockDim.x) {
    int q[4];
    for (uint32_t j = 0; j < 4; ++j) {
      q[j] = static_cast<int>(fminf(fmaxf(rintf(rows.weight(blockIdx.x, i + j) / scale), -128), 127));
    }
    Format::put(rows.quad<Format>(blockIdx.x, i), q);
  }
}

// This takes rows that were quantized before they were stored. stored: the scales of the rows.
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

}  // namespace

class Int8wo : public cuda::PackedScheme<Int8wo>, public Schema {
 public:
  static constexpr bool kRouted = true;

  Int8wo(const sdk::Params&, const sdk::Env& env) : PackedScheme(env) {}

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    return rows::has_own_tensors(s.matrix[mat], TENON_I8) ? rows::need_int8(s, mat) : PackedScheme::source(s, mat);
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
      cuda::launch_load(&take_kernel, src, queue, loaded, scales,
                        static_cast<const float*>(src.tensor[rows::kScale].data));
    } else {
      cuda::launch_load(&load_kernel, src, queue, loaded, scales);
    }
  }
};

}  // namespace tenon::int8wo

TENON_PLUGIN(tenon::int8wo::Int8wo);
