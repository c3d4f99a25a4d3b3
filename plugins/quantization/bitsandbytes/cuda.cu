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

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    if (s.experts != 0) {
      throw sdk::Refused(
          "x in int8 for the products of experts, which a GPU does not have here; activations = \"f32\" leaves x as it "
          "is");
    }
    return OutlierScheme::claim(s, b);
  }
  static tenon_tid without_outliers(const Site& site, float threshold, const tenon_linear_call& call,
                                    sdk::Recorder& rec) {
    return int8_rows::record_without_outliers(site, threshold, call, rec);
  }
  static void outliers(const Site& site, float threshold, const tenon_linear_call& call, sdk::Recorder& rec) {
    int8_rows::record_outliers<Format>(site, threshold, call, rec);
  }
};
using Plain = published::CudaScheme<CudaSchema>;

}  // namespace
}  // namespace tenon::bitsandbytes

using BitsAndBytes = tenon::published::RoundingScheme<tenon::bitsandbytes::Schema, tenon::bitsandbytes::Choice,
                                                      tenon::bitsandbytes::Plain, tenon::bitsandbytes::RoundedRows>;
TENON_PLUGIN(BitsAndBytes);
