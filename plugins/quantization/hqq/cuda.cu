#include "../published/cuda_scheme.cuh"
#include "../published/pair_forms.cuh"
#include "schema.h"

namespace tenon::hqq {

struct CudaSchema : Schema {
  static constexpr bool kRoutesRows = true;
  template <uint32_t kIndex>
  using Format = published::GroupedForm<kCodings[kIndex].bits, cuda::FloatPairs, kCodings[kIndex].group>;
};

}  // namespace tenon::hqq

TENON_PLUGIN(tenon::published::CudaScheme<tenon::hqq::CudaSchema>);
