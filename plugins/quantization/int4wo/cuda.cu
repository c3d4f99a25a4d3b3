// Weights of 4 bits lie in groups with a scale and a zero point in bf16. A warp makes a group while the matrix is
// loaded; matrices that were stored in groups are taken as they are. README.md has the formula, ../rows/quantize_rows.h
// the same on the CPU.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "../rows/stored_rows.h"
#include "routed.cuh"
#include "schema.h"
#include "tenon/cuda/load_rows.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::int4wo {
namespace {

// In the store a group ends with its segment: one of 256 has its scale and zero point twice.
constexpr uint32_t stored_group(uint32_t group) {
  return group < 128 ? group : 128;
}

__device__ uint32_t bf16_bits(float f) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}

// A warp takes a group. One with a weight that is not finite stands for NaN: nothing can be reported from here.
template <uint32_t Group>
__global__ void load_kernel(const cuda::LoadedRows rows) {
  using Format = cuda::Int4Format<stored_group(Group)>;
  const uint32_t padded = cuda::segments_of<Format>(rows.k) * Format::kSegmentK, lane = threadIdx.x % 32;
  const uint32_t packed_row = rows.packed_row(blockIdx.x);
  for (uint32_t begin = threadIdx.x / 32 * Group; begin < padded; begin += blockDim.x / 32 * Group) {
    float least = INFINITY, greatest = -INFINITY;
    bool bad = false;
    for (uint32_t i = begin + lane; i < begin + Group && i < rows.k; i += 32) {
      const float w = rows.weight(blockIdx.x, i);
      least = fminf(least, w);
      greatest = fmaxf(greatest, w);
      bad |= !(fabsf(w) <= FLT_MAX);
    }
    least = cuda::warp_min(least);
    greatest = cuda::warp_max(greatest);
    uint32_t pair = 0;
    if (begin < rows.k) {
      const float step = fmaxf((greatest - least) / 15.0F, 1e-6F);
      pair = bf16_bits(step) | bf16_bits(least + 8.0F * step) << 16;
    }
    if (__any_sync(~0U, bad)) pair = 0x7fff7fff;
    for (uint32_t i = begin + stored_group(Group) * lane; i < begin + Group && i < padded;
         i += 32 * stored_group(Group)) {
      uint8_t* to = rows.segment<Format>(blockIdx.x, i) + Format::scale_offset(packed_row % cuda::kTileRows, i);
      *reinterpret_cast<uint32_t*>(to) = pair;
    }
    const float scale = __uint_as_float(pair << 16), first = __uint_as_float(pair & 0xffff0000) - 8.0F * scale;
    for (uint32_t i = begin + 8 * lane; i < begin + Group && i < padded; i += 8 * 32) {
      uint32_t q[8];
      for (uint32_t j = 0; j < 8; ++j) {
        const float w = rows.weight(blockIdx.x, i + j);
        q[j] = i + j < rows.k ? static_cast<uint32_t>(fminf(fmaxf(rintf((w - first) / scale), 0), 15)) : 8;
      }
      Format::put(rows.segment<Format>(blockIdx.x, i), packed_row % cuda::kTileRows, i, q);
    }
  }
}

// The file has these of rows that were quantized before they were stored, beside the weights: bf16 for each group.
struct StoredGroups {
  const uint16_t *scale, *zero;
};
template <uint32_t Group>
__global__ void take_kernel(const cuda::LoadedRows rows, const StoredGroups stored) {
  using Format = cuda::Int4Format<stored_group(Group)>;
  const uint32_t padded = cuda::segments_of<Format>(rows.k) * Format::kSegmentK, lane = threadIdx.x % 32;
  const uint32_t packed_row = rows.packed_row(blockIdx.x);
  const uint32_t groups = (rows.k + Group - 1) / Group;
  const uint8_t* row = static_cast<const uint8_t*>(rows.data) + size_t{blockIdx.x} * groups * (Group / 2);
  for (uint32_t begin = threadIdx.x / 32 * Group; begin < padded; begin += blockDim.x / 32 * Group) {
    const bool there = begin < rows.k;
    const uint8_t* group = row + begin / 2;
    const size_t at_group = size_t{blockIdx.x} * groups + begin / Group;
    const uint32_t pair = there ? stored.scale[at_group] | uint32_t{stored.zero[at_group]} << 16 : 0;
    for (uint32_t i = begin + stored_group(Group) * lane; i < begin + Group && i < padded;
         i += 32 * stored_group(Group)) {
      uint8_t* to = rows.segment<Format>(blockIdx.x, i) + Format::scale_offset(packed_row % cuda::kTileRows, i);
      *reinterpret_cast<uint32_t*>(to) = pair;
    }
    for (uint32_t i = begin + 8 * lane; i < begin + Group && i < padded; i += 8 * 32) {
      uint32_t q[8];
      for (uint32_t j = 0; j < 8; ++j) {
        const uint32_t at = i + j - begin;
        const uint32_t both = there ? group[at / 32 * 16 + at % 16] : 0x88;
        q[j] = at % 32 < 16 ? both & 15 : both >> 4;
      }
      Format::put(rows.segment<Format>(blockIdx.x, i), packed_row % cuda::kTileRows, i, q);
    }
  }
}

// Calls f(std::integral_constant of the group).
template <class F>
void with_group(uint32_t group, const F& f) {
  if (group == 32) return f(std::integral_constant<uint32_t, 32>{});
  if (group == 64) return f(std::integral_constant<uint32_t, 64>{});
  if (group == 128) return f(std::integral_constant<uint32_t, 128>{});
  f(std::integral_constant<uint32_t, 256>{});
}

}  // namespace

class Int4wo : public cuda::PackedScheme<Int4wo>, public Schema {
 public:
  static constexpr bool kRouted = true;

  Int4wo(const sdk::Params& params, const sdk::Env& env)
      : PackedScheme(env, params.boolean(sdk::kPlainCopy)),
        group_(static_cast<uint32_t>(params.integer("group_size"))) {
    if (!params.boolean("hqq")) return;
    throw sdk::Refused(
        "hqq is no work for loading on a GPU: `tenon quantize --scheme int4wo --set hqq=true` makes a file, "
        "which is taken as it is");
  }

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    return rows::has_own_tensors(s.matrix[mat], TENON_U8) ? rows::need_int4(s, mat) : PackedScheme::source(s, mat);
  }
  static bool exact(const Site& site) {
    return std::all_of(site.source.begin(), site.source.end(), [](tenon_format f) { return rows::int4_group(f) != 0; });
  }
  // Matrices that were stored in groups keep them; one site has one kind.
  uint32_t code(std::span<const tenon_format> sources) const {
    uint32_t found = 0;
    for (const tenon_format source : sources) {
      const uint32_t group = stored_group(rows::int4_group(source));
      if (group != 0 && found != 0 && group != found) {
        throw sdk::Refused("matrices side by side in groups of " + std::to_string(found) + " and " +
                           std::to_string(group) + "; on a GPU they must have the same");
      }
      if (group != 0) found = group;
    }
    return found != 0 ? found : stored_group(group_);
  }
  template <class Use>
  static void with_format(uint32_t code, const Use& use) {
    if (code == 32) return use(cuda::Int4Format<32>{});
    if (code == 64) return use(cuda::Int4Format<64>{});
    use(cuda::Int4Format<128>{});
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void* queue) const {
    const cuda::LoadedRows loaded = cuda::loaded_rows(site, src, store[0]);
    const uint32_t stored = rows::int4_group(site.source_of(src));
    const uint32_t group = stored != 0 ? stored : stored_group(group_) == site.code ? group_ : site.code;
    with_group(group, [&]<uint32_t Group>(std::integral_constant<uint32_t, Group>) {
      if (stored != 0) {
        const StoredGroups groups{static_cast<const uint16_t*>(src.tensor[rows::kScale].data),
                                  static_cast<const uint16_t*>(src.tensor[rows::kZero].data)};
        cuda::launch_load(&take_kernel<Group>, src, queue, loaded, groups);
      } else {
        cuda::launch_load(&load_kernel<Group>, src, queue, loaded);
      }
    });
    load_plain(site, src, store, queue);
  }

 private:
  uint32_t group_;
};

}  // namespace tenon::int4wo

TENON_PLUGIN(tenon::int4wo::Int4wo);
