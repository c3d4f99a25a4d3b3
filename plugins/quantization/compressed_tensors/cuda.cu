#include "../published/cuda_scheme.cuh"
#include "../published/grouped_forms.cuh"
#include "schema.h"

namespace tenon::compressed_tensors {

struct CudaSchema : Schema {
  static constexpr bool kRoutesRows = true;
  template <uint32_t kIndex>
  using Format = published::FormOf<kCodings, kIndex>;
};

}  // namespace tenon::compressed_tensors

TENON_PLUGIN(tenon::published::CudaScheme<tenon::compressed_tensors::CudaSchema>);
