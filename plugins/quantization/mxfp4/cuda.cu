#include "../published/cuda_scheme.cuh"
#include "schema.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::mxfp4 {

struct CudaSchema : Schema {
  static constexpr bool kRoutesRows = true;
  using Weights = cuda::BookWeights<coded::E2m1>;
  template <uint32_t kIndex>
  using Format = std::conditional_t<kIndex == kMx, cuda::GroupedFormat<Weights, cuda::ExponentScales, 32, 4>,
                                    cuda::GroupedFormat<Weights, cuda::E4m3Scales, 16, 4>>;
};

}  // namespace tenon::mxfp4

TENON_PLUGIN(tenon::published::CudaScheme<tenon::mxfp4::CudaSchema>);
