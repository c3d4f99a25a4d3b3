#include "../int8_rows/cuda_scheme.cuh"
// These come after it, since kernels prepare x by what that declares.
#include "../int8_rows/published_cuda.cuh"
#include "../published/cuda_scheme.cuh"
#include "../published/grouped_forms.cuh"
#include "rounded.h"
#include "schema.h"

namespace tenon::compressed_tensors {

struct CudaSchema : Schema {
  static constexpr bool kRoutesRows = true;
  template <uint32_t kIndex>
  using Format = published::FormOf<kCodings, kIndex>;
};

namespace {

struct RoundedRows : int8_rows::PublishedCudaScheme<RoundedRows, RoundedSchema, RoundedMatrix> {
  using PublishedCudaScheme::PublishedCudaScheme;
};
using Plain = published::CudaScheme<CudaSchema>;

}  // namespace
}  // namespace tenon::compressed_tensors

using CompressedTensors =
    tenon::published::RoundingScheme<tenon::compressed_tensors::Schema, tenon::compressed_tensors::Choice,
                                     tenon::compressed_tensors::Plain, tenon::compressed_tensors::RoundedRows>;
TENON_PLUGIN(CompressedTensors);
