#include "../coded/cuda_scheme.cuh"
#include "published.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::fp8 {

struct CudaSchema : PublishedSchema {
  static constexpr bool kRoutesRows = true;
  using Weights = cuda::FloatWeights<cuda::Bytes<0>, sdk::SmallFloat<4, 3>>;
  // Blocks of 128 lie as groups of 64 with equal scales.
  template <uint32_t kIndex>
  using Format = cuda::GroupedFormat<
      Weights,
      std::conditional_t<kCodings[kIndex].scaling == coded::Scaling::kGroup, cuda::FloatScales, cuda::NoScales>, 64, 2>;
};

}  // namespace tenon::fp8

TENON_PLUGIN(tenon::coded::CudaScheme<tenon::fp8::CudaSchema>);
