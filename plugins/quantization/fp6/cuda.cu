#include "../coded/cuda_scheme.cuh"
#include "schema.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::fp6 {

struct CudaSchema : Schema {
  template <uint32_t kIndex>
  using Format = cuda::GroupedFormat<cuda::SixBitFloats<Float<kIndex>>, cuda::NoScales, 128, 4>;
};

}  // namespace tenon::fp6

TENON_PLUGIN(tenon::coded::CudaScheme<tenon::fp6::CudaSchema>);
