#include <cfloat>
#include <cmath>

#include "schema.h"
#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/load_rows.cuh"

namespace tenon::int4wo {
namespace {

// In the store a group ends with its chunk: one of 256 has its scale and zero point twice.
constexpr uint32_t stored_group(uint32_t group) {
  return group < 128 ? group : 128;
}

__device__ uint32_t bf16_bits(float f) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}

// A warp a group. One with a weight that is not finite stands for NaN: nothing can be reported from here.
template <uint32_t Group>
__global__ void load_kernel(const cuda::LoadedRows rows) {
  using Format = cuda::Int4Format<stored_group(Group)>;
  const uint32_t padded = cuda::chunks_of<Format>(rows.k) * Format::kChunkK, lane = threadIdx.x % 32;
  const uint32_t slot = rows.slot(blockIdx.x);
  for (uint32_t begin = threadIdx.x / 32 * Group; begin < padded; begin += blockDim.x / 32 * Group) {
    float least = INFINITY, greatest = -INFINITY;
    bool bad = false;
    for (uint32_t i = begin + lane; i < begin + Group && i < rows.k; i += 32) {
      const float w = rows.weight(blockIdx.x, i);
      least = fminf(least, w), greatest = fmaxf(greatest, w), bad |= !(fabsf(w) <= FLT_MAX);
    }
    for (int d = 16; d > 0; d /= 2) {
      least = fminf(least, __shfl_xor_sync(~0U, least, d));
      greatest = fmaxf(greatest, __shfl_xor_sync(~0U, greatest, d));
    }
    uint32_t pair = 0;
    if (begin < rows.k) {
      const float step = fmaxf((greatest - least) / 15.0F, 1e-6F);
      pair = bf16_bits(step) | bf16_bits(least + 8.0F * step) << 16;
    }
    if (__any_sync(~0U, bad)) pair = 0x7fff7fff;
    for (uint32_t i = begin + stored_group(Group) * lane; i < begin + Group && i < padded;
         i += 32 * stored_group(Group)) {
      uint8_t* to = rows.chunk<Format>(blockIdx.x, i) + Format::scale_offset(slot % cuda::kTileRows, i);
      *reinterpret_cast<uint32_t*>(to) = pair;
    }
    const float scale = __uint_as_float(pair << 16), first = __uint_as_float(pair & 0xffff0000) - 8.0F * scale;
    for (uint32_t i = begin + 8 * lane; i < begin + Group && i < padded; i += 8 * 32) {
      uint32_t q[8];
      for (uint32_t j = 0; j < 8; ++j) {
        const float w = rows.weight(blockIdx.x, i + j);
        q[j] = i + j < rows.k ? static_cast<uint32_t>(fminf(fmaxf(rintf((w - first) / scale), 0), 15)) : 8;
      }
      Format::put(rows.chunk<Format>(blockIdx.x, i), slot % cuda::kTileRows, i, q);
    }
  }
}

}  // namespace

class Int4wo : public cuda::PackedScheme<Int4wo>, public Schema {
 public:
  static constexpr uint32_t kStores = 1;

  Int4wo(const sdk::Params& params, const sdk::Env& env)
      : PackedScheme(env), group_(static_cast<uint32_t>(params.integer("group_size"))) {}

  uint32_t code(const tenon_linear&) const { return stored_group(group_); }
  template <class Use>
  static void with_format(uint32_t code, const Use& use) {
    if (code == 32) return use(cuda::Int4Format<32>{});
    if (code == 64) return use(cuda::Int4Format<64>{});
    use(cuda::Int4Format<128>{});
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void* queue) const {
    const auto kernel = group_ == 32    ? &load_kernel<32>
                        : group_ == 64  ? &load_kernel<64>
                        : group_ == 128 ? &load_kernel<128>
                                        : &load_kernel<256>;
    cuda::launch_load(kernel, src, queue, cuda::loaded_rows(site, src, store[0]));
  }

 private:
  uint32_t group_;
};

}  // namespace tenon::int4wo

TENON_PLUGIN(tenon::int4wo::Int4wo);
