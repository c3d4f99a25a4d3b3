#include "plugin.h"
#include "tenon/cuda/attention_exact.cuh"

namespace tenon::reference {

tenon_claim Reference::claim(const tenon_attn& a, const tenon_kv_format& f, const tenon_bounds&) const {
  if (const std::string why = cuda::not_exact(a, f); !why.empty()) throw sdk::Refused(why);
  auto claim = sdk::abi_struct<tenon_claim>();
  claim.rank = -1;
  return claim;
}

tenon_kv_format Reference::preferred_format() const {
  return cuda::plain_kv_format(TENON_F32);
}

void Reference::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  cuda::record_exact(a, call, r);
}

}  // namespace tenon::reference

TENON_PLUGIN(tenon::reference::Reference);
