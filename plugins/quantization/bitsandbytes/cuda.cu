#include "../int8_rows/cuda_scheme.cuh"
// These come after it, since kernels prepare x by what that declares.
#include "../int8_rows/outliers.cuh"
#include "../int8_rows/published_cuda.cuh"
#include "../published/cuda_scheme.cuh"
#include "rounded.h"
#include "schema.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::bitsandbytes {

template <uint32_t kIndex>
struct FormOf {
  using Type = cuda::GroupedFormat<cuda::BookWeights<typename Schema::Codes<kIndex>::Book>, cuda::FloatScales, 64, 4>;
};
// A row has the scale.
template <>
struct FormOf<kInt8> {
  using Type = cuda::GroupedFormat<cuda::Bytes<128>, cuda::NoScales, 64, 2>;
};

struct CudaSchema : Schema {
  static constexpr bool kRoutesRows = true;
  template <uint32_t kIndex>
  using Format = typename FormOf<kIndex>::Type;
};

namespace {

class RoundedRows
    : public OutlierScheme<RoundedRows, int8_rows::PublishedCudaScheme<RoundedRows, RoundedSchema, RoundedMatrix>> {
 public:
  using OutlierScheme::OutlierScheme;

  static tenon_tid without_outliers(const Site& site, float threshold, const tenon_linear_call& call,
                                    sdk::Recorder& rec) {
    return int8_rows::record_without_outliers(site, threshold, call, rec);
  }
  static void outliers(const Site& site, float threshold, const tenon_linear_call& call, sdk::Recorder& rec) {
    int8_rows::record_outliers<Format>(site, threshold, call, rec);
  }
};
using Plain = published::CudaScheme<CudaSchema>;

// int8_rows has no products of experts on a GPU, so x of these stays as it is.
struct GpuChoice : Choice {
  using Choice::Choice;
  bool rounds_x(const tenon_linear& s) const { return s.experts == 0 && Choice::rounds_x(s); }
};

}  // namespace
}  // namespace tenon::bitsandbytes

using BitsAndBytes = tenon::published::RoundingScheme<tenon::bitsandbytes::Schema, tenon::bitsandbytes::GpuChoice,
                                                      tenon::bitsandbytes::Plain, tenon::bitsandbytes::RoundedRows>;
TENON_PLUGIN(BitsAndBytes);
