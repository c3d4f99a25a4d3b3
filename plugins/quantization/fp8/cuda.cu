#include "../coded/cuda_scheme.cuh"
#include "schema.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::fp8 {

struct CudaSchema : Schema {
  template <uint32_t>
  using Format = cuda::GroupedFormat<cuda::FloatWeights<cuda::Bytes<0>, sdk::SmallFloat<4, 3>>, cuda::NoScales, 64, 2>;
};

}  // namespace tenon::fp8

TENON_PLUGIN(tenon::coded::CudaScheme<tenon::fp8::CudaSchema>);
