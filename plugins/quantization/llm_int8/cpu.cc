#include "../int8_rows/cpu_scheme.h"
#include "../int8_rows/outliers.h"
#include "schema.h"

namespace tenon::llm_int8 {

class LlmInt8 : public int8_rows::CpuScheme<LlmInt8, Schema> {
 public:
  using Base = int8_rows::CpuScheme<LlmInt8, Schema>;

  LlmInt8(const sdk::Params& params, const sdk::Env& env) : Base(params, env), threads_(env.device().units) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    return int8_rows::claim_beside_outliers<Base>(*this, s, b);
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    Base::record(site, call, rec);
    int8_rows::record_outliers(site, {kOutlier, threads_}, call, rec);
  }

 private:
  uint32_t threads_;
};

}  // namespace tenon::llm_int8

TENON_PLUGIN(tenon::llm_int8::LlmInt8);
