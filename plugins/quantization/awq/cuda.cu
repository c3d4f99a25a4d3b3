#include "../calibrated/moments.cuh"
#include "../published/cuda_scheme.cuh"
#include "../published/grouped_forms.cuh"
#include "schema.h"

namespace tenon::awq {

struct CudaSchema : Schema, calibrated::ObservesMomentsOnGpu {
  static constexpr bool kRoutesRows = true;
  template <uint32_t kIndex>
  using Format = published::FormOf<kCodings, kIndex>;
};

}  // namespace tenon::awq

TENON_PLUGIN(tenon::published::CudaScheme<tenon::awq::CudaSchema>);
