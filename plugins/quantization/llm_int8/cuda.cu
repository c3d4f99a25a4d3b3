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

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    return int8_rows::claim_beside_outliers<Base>(*this, s, b);
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    Base::record(site, call, rec);
    int8_rows::record_outliers<Format>(site, kOutlier, call, rec);
  }
};

}  // namespace tenon::llm_int8

TENON_PLUGIN(tenon::llm_int8::LlmInt8);
