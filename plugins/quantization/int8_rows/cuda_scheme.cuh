// This is the base of the schemes of definition.h on CUDA. Up to 16 rows are multiplied by integer_format.cuh, more by
// integer_gemm.cuh.
#pragma once

#include <algorithm>

#include "definition.h"
// This comes before packed_scheme.cuh, whose kernels prepare x by what this declares.
#include "integer_format.cuh"
// These come after it.
#include "integer_gemm.cuh"
#include "load_kernels.cuh"

namespace tenon::int8_rows {

// T is the class of the scheme.
template <class T, Int8Rows SchemaOf>
class CudaScheme : public cuda::PackedScheme<T>, public SchemaOf {
 public:
  using Base = cuda::PackedScheme<T>;
  using Site = cuda::PackedSite;
  using Format = cuda::IntegerFormat<SchemaOf>;
  // Outliers are numbers of x as it is.
  static constexpr tenon_format kManyRowsFormat = SchemaOf::kOutlier < kNoOutliers ? TENON_F32 : TENON_F16;

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
      cuda::launch_load(&load_kernel<Format, SchemaOf>, src, queue, loaded, scales);
    }
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    if (rec.describe(call.y).dim[0] <= cuda::kMatvecRows) return Base::record(site, call, rec);
    cuda::IntegerGemmRecording<Format>(site, call, rec).record();
  }
};

}  // namespace tenon::int8_rows
