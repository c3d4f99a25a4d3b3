// This is quantization.sparse24 on a GPU: two kernels fill the packed store when a model is loaded, and PackedScheme
// multiplies from it (weights.cuh has the segment's layout and the sparse products). definition.h has the form and the
// arithmetic, and cpu.cc the same pruning and quantization for a CPU, the naive twin of load_kernel.
//
// Invariants: a block of threads fills one row, and writes all codes of its segments, padding included: code 8, the
// integer 0, where nothing is kept. Each group has its scale in its segment; where a row has one scale, each group of
// 128 has it. A kernel cannot report an error: a weight or a scale that is not finite, or a quad whose columns are out
// of order, makes a scale NaN, so that the products of the row are NaN.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <span>
#include <string>
#include <type_traits>

#include "definition.h"
#include "schema.h"
#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/load_rows.cuh"
#include "weights.cuh"

namespace tenon::sparse24 {
namespace {

// A matrix of kGroups[kIndex] is packed in this format. A row with one scale has it in each of its groups of 128.
template <uint32_t kIndex>
using Format = cuda::SparseFormat<cuda::HalfScales, kIndex == 0 ? 128 : kGroups[kIndex]>;

template <class Use>
void with_index(uint32_t index, const Use& use) {
  if (index == 0) return use(std::integral_constant<uint32_t, 0>{});
  if (index == 1) return use(std::integral_constant<uint32_t, 1>{});
  if (index == 2) return use(std::integral_constant<uint32_t, 2>{});
  use(std::integral_constant<uint32_t, 3>{});
}

// Stores 8 codes of a row from k on and, of a group's first ones, its scale. A scale that is not finite is NaN.
template <class F>
__device__ void put_codes(const cuda::LoadedRows& rows, uint32_t k, const uint32_t (&q)[8], uint16_t scale) {
  uint8_t* segment = rows.segment<F>(blockIdx.x, k);
  const uint32_t row = rows.packed_row(blockIdx.x) % cuda::kTileRows;
  F::put(segment, row, k, q);
  constexpr uint16_t kNan = 0x7fff;
  const bool finite = (scale & 0x7c00) != 0x7c00;
  if (k % F::kGroup == 0) *reinterpret_cast<uint16_t*>(segment + F::scale_offset(row, k)) = finite ? scale : kNan;
}

// The bits of the largest magnitude of the weights from begin on, every step-th of them.
__device__ uint32_t largest_of(const cuda::LoadedRows& rows, uint32_t begin, uint32_t end, uint32_t step) {
  uint32_t largest = 0;
  for (uint32_t i = begin; i < end && i < rows.k; i += step) {
    largest = max(largest, __float_as_uint(rows.weight(blockIdx.x, i)) & 0x7fffffff);
  }
  return largest;
}

// A block has a row, a thread whole groups of it. A weight that is not finite, or a range beyond fp16, makes its group
// answer NaN, or its row where that has one scale (group 0): nothing can be reported from here.
template <class F>
__global__ void load_kernel(const cuda::LoadedRows rows, uint32_t group) {
  constexpr uint32_t kScaledK = std::max<uint32_t>(F::kGroup, 64);
  __shared__ uint32_t of_row;
  uint16_t scale = 0;
  if (group == 0) {
    if (threadIdx.x == 0) of_row = 0;
    __syncthreads();
    atomicMax(&of_row, largest_of(rows, threadIdx.x, rows.k, blockDim.x));
    __syncthreads();
    scale = scale_bits(__uint_as_float(of_row));
  }
  const uint32_t padded = cuda::segments_of<F>(rows.k) * F::kSegmentK;
  for (uint32_t begin = threadIdx.x * kScaledK; begin < padded; begin += blockDim.x * kScaledK) {
    for (uint32_t k = begin; k < begin + kScaledK && k < padded; k += 8) {
      if (group != 0 && k % F::kGroup == 0) {
        scale = scale_bits(__uint_as_float(largest_of(rows, k, k + F::kGroup, 1)));
      }
      const float held = sdk::half_to_float(scale);
      uint32_t q[8];
      for (uint32_t at = 0; at < 8; at += 4) {
        float w[4];
        for (uint32_t i = 0; i < 4; ++i) w[i] = isfinite(held) ? rows.weight(blockIdx.x, k + at + i) : 0;
        const Kept kept = kept_of(w);
        for (uint32_t i = 0; i < 4; ++i) {
          const bool there = i == kept.first || i == kept.second;
          q[at + i] = there ? static_cast<uint32_t>(integer_of(w[i], held) + 8) : 8;
        }
      }
      put_codes<F>(rows, k, q, scale);
    }
  }
}

// Takes rows as they are stored. units: of a row in the file; scales: (rows, groups) f16. Columns
// out of order make a scale of the row NaN.
template <class F>
__global__ void take_kernel(const cuda::LoadedRows rows, uint32_t units, const uint8_t* stored, const uint16_t* scales,
                            uint32_t group) {
  const uint32_t padded = cuda::segments_of<F>(rows.k) * F::kSegmentK;
  const auto groups = static_cast<uint32_t>(groups_of(group, rows.k));
  const uint8_t* own = stored + size_t{blockIdx.x} * units * kUnitBytes;
  bool bad = false;
  for (uint32_t begin = threadIdx.x * 64; begin < padded; begin += blockDim.x * 64) {
    for (uint32_t k = begin; k < begin + 64; k += 8) {
      uint32_t q[8] = {8, 8, 8, 8, 8, 8, 8, 8};
      for (uint32_t at = 0; at < 8 && k / kUnit < units; at += 4) {
        const Quad quad = quad_at(own + k / kUnit * kUnitBytes, (k + at) % kUnit / 4);
        bad |= !in_order(quad);
        q[at + (quad.columns & 3)] = (quad.integers & 15) ^ 8;
        q[at + (quad.columns >> 2)] = quad.integers >> 4 ^ 8;
      }
      const uint32_t at = group == 0 ? 0 : k / group;
      const uint16_t scale = at < groups ? scales[size_t{blockIdx.x} * groups + at] : 0;
      put_codes<F>(rows, k, q, scale);
    }
  }
  if (__syncthreads_or(bad ? 1 : 0) != 0 && threadIdx.x == 0) {
    const uint32_t row = rows.packed_row(blockIdx.x) % cuda::kTileRows;
    *reinterpret_cast<uint16_t*>(rows.segment<F>(blockIdx.x, 0) + F::scale_offset(row, 0)) = 0x7fff;
  }
}

}  // namespace

class Sparse24 : public cuda::PackedScheme<Sparse24>, public Schema {
 public:
  Sparse24(const sdk::Params& params, const sdk::Env& env) : PackedScheme(env), chosen_(choose(params)) {}

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    const tenon_format stored = stored_format(s, mat);
    return stored != 0 ? stored : PackedScheme::source(s, mat);
  }
  static bool exact(const Site& site) { return std::all_of(site.source.begin(), site.source.end(), &is_stored); }
  // Matrices that were stored keep their groups; one site has one size.
  uint32_t code(std::span<const tenon_format> sources) const {
    uint32_t code = chosen_;
    bool found = false;
    for (const tenon_format source : sources) {
      if (!is_stored(source)) continue;
      if (found && code != source - kStored) {
        throw sdk::Refused(
            "matrices side by side that are stored in groups of different sizes; on a GPU they must have the same");
      }
      code = source - kStored;
      found = true;
    }
    return code;
  }
  template <class Use>
  static void with_format(uint32_t code, const Use& use) {
    with_index(code, [&]<uint32_t kIndex>(std::integral_constant<uint32_t, kIndex>) { use(Format<kIndex>{}); });
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void* queue) const {
    const cuda::LoadedRows rows = cuda::loaded_rows(site, src, store[0]);
    const uint32_t group = kGroups[site.code];
    with_format(site.code, [&]<class F>(F) {
      if (is_stored(site.source_of(src))) {
        cuda::launch_load(&take_kernel<F>, src, queue, rows, static_cast<uint32_t>(units_of(group, site.k)),
                          static_cast<const uint8_t*>(src.tensor[kWeightTensor].data),
                          static_cast<const uint16_t*>(src.tensor[kScaleTensor].data), group);
      } else {
        cuda::launch_load(&load_kernel<F>, src, queue, rows, group);
      }
    });
  }

 private:
  uint32_t chosen_;  // it is an index of kGroups
};

}  // namespace tenon::sparse24

TENON_PLUGIN(tenon::sparse24::Sparse24);
