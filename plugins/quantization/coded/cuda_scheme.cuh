// This is the base of the schemes of coding.h on CUDA. Matrices are quantized on the GPU while they load, by the
// functions of quantize.h, or taken as they are stored, and packed in a format of the SDK
// (tenon/cuda/grouped_formats.cuh). A block of threads has a row; a thread has whole groups and whole 64 k, since no
// less has bytes of its own in every packed format.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>

#include "../published/device_matrix.cuh"
#include "schema.h"
#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/load_rows.cuh"

namespace tenon::coded {

// A kernel knows this much of a Coding.
struct DeviceCoding {
  uint32_t bits;
  Scaling scaling;
  bool plain_bytes;
  uint32_t group;    // so many weights share a scale in the file, or are to
  uint32_t columns;  // a row of the file has so many, with its filling
  uint32_t chunk;    // a thread quantizes so many k at a time
};

// This is a group's scale as it is held.
struct HeldScale {
  float scale = 0;    // kGroup, kZeroPoint
  uint32_t code = 0;  // kTwoLevel: it counts multiples of the row's scale
  uint32_t zero = 0;  // kZeroPoint
};

namespace detail {

__device__ inline void put_held(cuda::NoScales, uint8_t*, uint32_t, uint32_t, const HeldScale&) {}
__device__ inline void put_held(cuda::FloatScales, uint8_t* scales, uint32_t row, uint32_t group, const HeldScale& s) {
  *reinterpret_cast<float*>(scales + cuda::FloatScales::byte_offset(row, group)) = s.scale;
}
__device__ inline void put_held(cuda::ByteScales, uint8_t* scales, uint32_t row, uint32_t group, const HeldScale& s) {
  scales[cuda::ByteScales::byte_offset(row, group)] = static_cast<uint8_t>(s.code);
}
__device__ inline void put_held(cuda::ZeroPoints, uint8_t* scales, uint32_t row, uint32_t group, const HeldScale& s) {
  *reinterpret_cast<__nv_bfloat16*>(scales + cuda::ZeroPoints::byte_offset(row, group)) = __float2bfloat16_rn(s.scale);
  scales[cuda::ZeroPoints::zero_byte_offset(row, group)] = static_cast<uint8_t>(s.zero);
}

// Puts 8 codes of a row from k on, and with the first of a packed group its scale.
template <class F>
__device__ void put_codes(const cuda::LoadedRows& rows, uint32_t k, const uint32_t (&q)[8], const HeldScale& scale) {
  uint8_t* segment = rows.segment<F>(blockIdx.x, k);
  const uint32_t row = rows.packed_row(blockIdx.x) % cuda::kTileRows;
  F::put(segment, row, k, q);
  if (k % F::kGroup != 0) return;
  put_held(typename F::Scales{}, segment + F::kScales, row, k % F::kSegmentK / F::kGroup, scale);
}

// The weights from begin on of a row of floats: all of them, or a thread's share if the threads share them.
__device__ inline Range range_of(const cuda::LoadedRows& rows, uint32_t begin, uint32_t end, uint32_t step) {
  Range r;
  for (uint32_t i = begin; i < end && i < rows.k; i += step) r.add(rows.weight(blockIdx.x, i));
  return r;
}
// Returns the range of the whole row, found by all threads of the block.
__device__ inline Range range_of_row(const cuda::LoadedRows& rows) {
  __shared__ uint32_t magnitude;  // a float that is not negative rises with its bits
  if (threadIdx.x == 0) magnitude = 0;
  __syncthreads();
  Range r = range_of(rows, threadIdx.x, rows.k, blockDim.x);
  atomicMax(&magnitude, __float_as_uint(r.magnitude()));
  r.finite = __syncthreads_or(r.finite ? 0 : 1) == 0;
  r.greatest = __uint_as_float(magnitude);
  r.least = -r.greatest;
  return r;
}

}  // namespace detail

// Quantizes rows of floats. A weight that is not finite makes its group answer NaN, or its row where that has a
// scale: nothing can be reported from here.
template <class F, class Codes>
__global__ void quantize_kernel(const cuda::LoadedRows rows, const DeviceCoding c, float* row_scales) {
  const uint32_t padded = cuda::segments_of<F>(rows.k) * F::kSegmentK;
  float row_scale = 0;
  if constexpr (F::kRowScales) {
    const Range r = detail::range_of_row(rows);
    row_scale = Codes::scale_of(r).scale / (c.scaling == Scaling::kTwoLevel ? kScaleSteps : 1);
    if (threadIdx.x == 0) row_scales[rows.packed_row(blockIdx.x)] = r.finite ? row_scale : NAN;
  }
  for (uint32_t chunk = threadIdx.x * c.chunk; chunk < padded; chunk += blockDim.x * c.chunk) {
    for (uint32_t begin = chunk; begin < chunk + c.chunk && begin < padded; begin += c.group) {
      Scale scale{row_scale, 0};
      HeldScale held;
      if (c.scaling != Scaling::kRow) {
        const Range r = detail::range_of(rows, begin, begin + c.group, 1);
        scale = r.finite ? Codes::scale_of(r) : Scale{};
        if (c.scaling == Scaling::kTwoLevel) {
          held.code = scale_code(scale.scale, row_scale);
          scale.scale = static_cast<float>(held.code) * row_scale;
        }
        held.scale = r.finite ? scale.scale : NAN;
        held.zero = scale.zero;
      }
      for (uint32_t k = begin; k < begin + c.group && k < padded; k += 8) {
        uint32_t q[8];
        for (uint32_t i = 0; i < 8; ++i) q[i] = Codes::code(rows.weight(blockIdx.x, k + i), scale);
        detail::put_codes<F>(rows, k, q, held);
      }
    }
  }
}

// A file has these tensors of rows, in the file's order: codes in rows.data, and these.
struct StoredFields {
  const void *first, *second;
};

// Takes rows as they are stored. A scale that is not finite, or a code of NaN, makes its group or row answer NaN.
template <class F, class Codes>
__global__ void take_kernel(const cuda::LoadedRows rows, const DeviceCoding c, const StoredFields fields,
                            float* row_scales) {
  const uint32_t padded = cuda::segments_of<F>(rows.k) * F::kSegmentK, groups = c.columns / c.group;
  const uint32_t units = c.columns / sdk::kUnitCodes, unit_bytes = sdk::unit_bytes(c.bits);
  const auto* codes =
      static_cast<const uint8_t*>(rows.data) + size_t{blockIdx.x} * (c.plain_bytes ? rows.k : units * unit_bytes);
  const auto code = [&](uint32_t k) -> uint32_t {
    if (k >= rows.k) return 0;
    if (c.plain_bytes) return codes[k];
    return sdk::code_in_unit(c.bits, codes + k / sdk::kUnitCodes * unit_bytes, k % sdk::kUnitCodes);
  };
  const auto held = [&](uint32_t k) {
    HeldScale s;
    if (k >= rows.k) return s;
    const size_t at = size_t{blockIdx.x} * groups + k / c.group;
    if (c.scaling == Scaling::kGroup) s.scale = static_cast<const float*>(fields.first)[at];
    if (c.scaling == Scaling::kTwoLevel) s.code = static_cast<const uint8_t*>(fields.second)[at];
    if (has_zero_points(c.scaling)) {
      s.scale = __bfloat162float(static_cast<const __nv_bfloat16*>(fields.first)[at]);
      s.zero = static_cast<const uint8_t*>(fields.second)[at];
    }
    if (!isfinite(s.scale)) s.scale = NAN;
    return s;
  };
  bool bad = false;
  for (uint32_t chunk = threadIdx.x * 64; chunk < padded; chunk += blockDim.x * 64) {
    for (uint32_t k = chunk; k < chunk + 64; k += 8) {
      uint32_t q[8];
      for (uint32_t i = 0; i < 8; ++i) {
        q[i] = code(k + i);
        bad |= Codes::is_nan(q[i]);
      }
      detail::put_codes<F>(rows, k, q, held(k));
    }
  }
  if constexpr (F::kRowScales) {
    const float scale = static_cast<const float*>(fields.first)[blockIdx.x];
    bad = __syncthreads_or(bad ? 1 : 0) != 0;
    if (threadIdx.x == 0) row_scales[rows.packed_row(blockIdx.x)] = isfinite(scale) && !bad ? scale : NAN;
  }
}

// The Schema also has Format<i>, which packs kCodings[i] (tenon/cuda/grouped_formats.cuh).
template <Quantizes Schema>
class CudaScheme : public cuda::PackedScheme<CudaScheme<Schema>>, public Schema {
 public:
  using Base = cuda::PackedScheme<CudaScheme>;
  static_assert(cuda::PackedFormat<typename Schema::template Format<0>>);
  static constexpr bool kRouted = RoutesRows<Schema>;
  struct Site : cuda::PackedSite {
    std::vector<uint32_t> groups;  // by matrix of an expert: so many weights share a scale in the file, or are to
    std::vector<published::DeviceMatrix> published;  // by matrix of an expert
  };
  static constexpr size_t kCount = std::size(Schema::kCodings);

  CudaScheme(const sdk::Params& params, const sdk::Env& env) : Base(env), chosen_(chosen_by<Schema>(params)) {}

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    if (const auto form = published_matrix(s, mat)) return kPublished + form->coding();
    const std::optional<Holding> stored = stored_by<Schema>(s, mat);
    return stored ? kStoredCodings + stored->index : Base::source(s, mat);
  }
  static bool exact(const cuda::PackedSite& site) {
    return std::all_of(site.source.begin(), site.source.end(), &is_stored);
  }
  // Matrices that were stored in a coding keep it; one site has one.
  uint32_t code(std::span<const tenon_format> sources) const {
    uint32_t code = chosen_.index;
    bool found = false;
    for (const tenon_format source : sources) {
      if (!is_stored(source)) continue;
      const uint32_t stored = source - (source >= kPublished ? kPublished : kStoredCodings);
      if (found && code != stored) {
        throw sdk::Refused(
            "matrices side by side that are stored in different codings; on a GPU they must have the same");
      }
      code = stored;
      found = true;
    }
    return code;
  }
  template <class Use>
  static void with_format(uint32_t code, const Use& use) {
    with_index<kCount>(code, [&]<uint32_t kIndex>(std::integral_constant<uint32_t, kIndex>) {
      use(typename Schema::template Format<kIndex>{});
    });
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    auto site = std::make_unique<Site>();
    static_cast<cuda::PackedSite&>(*site) = std::move(*Base::bind(s, claims));
    const uint32_t group = site->code == chosen_.index ? chosen_.group : Schema::kCodings[site->code].group;
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->published.push_back({published_matrix(s, i), s.matrix[i].n_tensors});
      const bool own = is_stored(site->source[i]) && site->source[i] < kPublished;
      site->groups.push_back(own ? stored_by<Schema>(s, i)->group : group);
    }
    return site;
  }
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    for (const published::DeviceMatrix& m : site.published) {
      if (m.form == nullptr) continue;
      f.flags |= TENON_FOOTPRINT_WHOLE;
      f.load_bytes = published::batch_bytes(Schema::kCodings[site.code], site.k);
    }
    return f;
  }

  void load(cuda::PackedSite& packed, const tenon_rows& src, void* const* store, void* scratch, void* queue) const {
    const auto& site = static_cast<const Site&>(packed);
    if constexpr (kHasPublished) {
      const published::DeviceMatrix& matrix = site.published[src.mat % site.published.size()];
      if (matrix.form != nullptr) {
        return with_format(site.code, [&]<class F>(F) {
          published::load_matrix<F>(matrix, Schema::kCodings[site.code], src, {site, store, scratch, queue});
        });
      }
    }
    const cuda::LoadedRows rows = cuda::loaded_rows(site, src, store[0]);
    float* row_scales = site.stores == 2 ? site.scales(store[1], src) : nullptr;
    with_index<kCount>(site.code, [&]<uint32_t kIndex>(std::integral_constant<uint32_t, kIndex>) {
      using F = typename Schema::template Format<kIndex>;
      using Codes = typename Schema::template Codes<kIndex>;
      constexpr Coding kCoding = Schema::kCodings[kIndex];
      const uint32_t group = site.groups[src.mat % site.groups.size()];
      const DeviceCoding coding{kCoding.bits,
                                kCoding.scaling,
                                kCoding.plain_bytes(),
                                group,
                                static_cast<uint32_t>(filled(site.k, group)),
                                std::lcm(group, 64U)};
      if (is_stored(site.source_of(src))) {
        const StoredFields fields{src.tensor[1].data, kCoding.fields().size() > 1 ? src.tensor[2].data : nullptr};
        cuda::launch_load(&take_kernel<F, Codes>, src, queue, rows, coding, fields, row_scales);
      } else {
        cuda::launch_load(&quantize_kernel<F, Codes>, src, queue, rows, coding, row_scales);
      }
    });
  }

 private:
  static constexpr bool kHasPublished = ReadsPublished<Schema>;
  static std::unique_ptr<published::Matrix> published_matrix(const tenon_linear& s, uint32_t mat) {
    if constexpr (kHasPublished) return Schema::published(s, mat);
    return nullptr;
  }

  Holding chosen_;  // what is quantized is held so
};

}  // namespace tenon::coded
