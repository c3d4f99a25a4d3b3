#include "forms.cuh"

namespace tenon::uintx {

struct CudaSchema : Schema {
  template <uint32_t kIndex>
  using Format = std::conditional_t<
      kCodings[kIndex].scaling == coded::Scaling::kEights, Form<(kCodings[kIndex].bits > 4 ? 8 : 4), 8>,
      Form<(kCodings[kIndex].bits > 6 ? 8 : kCodings[kIndex].bits), (kCodings[kIndex].group < 64 ? 32 : 64)>>;
};

}  // namespace tenon::uintx

TENON_PLUGIN(tenon::coded::CudaScheme<tenon::uintx::CudaSchema>);
