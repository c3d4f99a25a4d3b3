#include "../exact/exact.cuh"
#include "plugin.h"

namespace tenon::reference {

tenon_claim Reference::claim(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b) const {
  return exact::claim(a, kv, b);
}

tenon_kv_format Reference::preferred_format() const {
  return sdk::plain_kv_format(TENON_F32);
}

void Reference::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  exact::record(a, call, r);
}

}  // namespace tenon::reference

TENON_PLUGIN(tenon::reference::Reference);
