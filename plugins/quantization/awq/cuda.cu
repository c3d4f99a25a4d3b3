#include "../calibrated/moments.cuh"
#include "../published/cuda_scheme.cuh"
#include "../published/grouped_forms.cuh"
#include "schema.h"

namespace tenon::awq {

struct CudaSchema : Schema {
  template <uint32_t kIndex>
  using Format = published::FormOf<kCodings, kIndex>;

  uint64_t observed_bytes(const tenon_linear& s) const {
    return s.experts != 0 ? 0 : calibrated::moments_bytes(static_cast<uint64_t>(s.in_dim));
  }
  void observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const {
    calibrated::observe_moments_on_gpu(s, call, rec);
  }
};

}  // namespace tenon::awq

TENON_PLUGIN(tenon::published::CudaScheme<tenon::awq::CudaSchema>);
