#include "../coded/cuda_scheme.cuh"
#include "schema.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::nf4 {

struct CudaSchema : Schema {
  static constexpr bool kRoutesRows = true;
  using Weights = cuda::BookWeights<coded::NormalFloat4>;
  template <uint32_t kIndex>
  using Format = cuda::GroupedFormat<
      Weights,
      std::conditional_t<kCodings[kIndex].scaling == coded::Scaling::kGroup, cuda::FloatScales, cuda::ByteScales>, 64,
      4>;
};

}  // namespace tenon::nf4

TENON_PLUGIN(tenon::coded::CudaScheme<tenon::nf4::CudaSchema>);
