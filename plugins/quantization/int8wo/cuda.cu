#include <cfloat>
#include <cmath>

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
    largest = fmaxf(largest, w), bad |= !(w <= FLT_MAX);
  }
  for (int d = 16; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, d));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = largest;
  bad = __syncthreads_or(bad) != 0;
  for (const float p : part) largest = fmaxf(largest, p);
  const float scale = fmaxf(largest / 127.5F, FLT_EPSILON);
  if (threadIdx.x == 0) scales[rows.slot(blockIdx.x)] = bad ? NAN : scale;
  const uint32_t padded = cuda::chunks_of<Format>(rows.k) * Format::kChunkK;
  for (uint32_t i = 4 * threadIdx.x; i < padded; i += 4 * blockDim.x) {
    int q[4];
    for (uint32_t j = 0; j < 4; ++j) {
      q[j] = static_cast<int>(fminf(fmaxf(rintf(rows.weight(blockIdx.x, i + j) / scale), -128), 127));
    }
    Format::put(rows.quad<Format>(blockIdx.x, i), q);
  }
}

}  // namespace

class Int8wo : public cuda::PackedScheme<Int8wo>, public Schema {
 public:
  static constexpr uint32_t kStores = 2;

  Int8wo(const sdk::Params&, const sdk::Env& env) : PackedScheme(env) {}

  static uint32_t code(const tenon_linear&) { return 0; }
  template <class Use>
  static void with_format(uint32_t, const Use& use) {
    use(Format{});
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void* queue) const {
    cuda::launch_load(&load_kernel, src, queue, cuda::loaded_rows(site, src, store[0]), static_cast<float*>(store[1]));
  }
};

}  // namespace tenon::int8wo

TENON_PLUGIN(tenon::int8wo::Int8wo);
