// Outliers are decided on the GPU, by each kernel that needs to know: x of 6 and more counts as 0 among the integers,
// and an op after the product adds what they give.
#include "../int8_rows/cuda_scheme.cuh"
// This comes after it.
#include "../int8_rows/outliers.cuh"
#include "schema.h"

namespace tenon::llm_int8 {

class LlmInt8 : public int8_rows::CudaScheme<LlmInt8, Schema> {
 public:
  using Base = int8_rows::CudaScheme<LlmInt8, Schema>;
  using Base::Base;

  // Nothing around the product is claimed: outliers are those of x as it is, and they are added after the product.
  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    if (s.x_format != TENON_F32 || s.y_format != TENON_F32) {
      throw sdk::Refused("activations other than f32, in which outliers are looked for");
    }
    tenon_claim claim = Base::claim(s, b);
    claim.pro = claim.epi = 0;
    return claim;
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    Base::record(site, call, rec);
    int8_rows::record_outliers<Format>(site, kOutlier, call, rec);
  }
};

}  // namespace tenon::llm_int8

TENON_PLUGIN(tenon::llm_int8::LlmInt8);
