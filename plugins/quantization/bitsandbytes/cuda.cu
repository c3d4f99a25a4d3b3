#include "../published/cuda_scheme.cuh"
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

}  // namespace tenon::bitsandbytes

TENON_PLUGIN(tenon::published::CudaScheme<tenon::bitsandbytes::CudaSchema>);
