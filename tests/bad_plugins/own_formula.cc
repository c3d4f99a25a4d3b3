// This is no bad plugin, but one that only its declaration saves: the template's attention, which sharpens the softmax.
#include "tenon/sdk/attention.h"

#pragma push_macro("TENON_PLUGIN")
#undef TENON_PLUGIN
#define TENON_PLUGIN(T) static_assert(true)
#include "../../sdk/template/attention/plain.cc"
#pragma pop_macro("TENON_PLUGIN")
// The template's class is in an unnamed namespace, and this file is included by another.
#pragma GCC diagnostic ignored "-Wsubobject-linkage"

namespace tenon::bad {

struct OwnFormula : sdk::Attention<OwnFormula> {
  static constexpr const char* kName = "own_formula";
  static constexpr const char* kDoc = "A softmax of twice the scores.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = 1;
#ifndef TENON_BAD_UNDECLARED
  static constexpr uint32_t kOwnRules = TENON_OWN_FORMULA;
#endif

  OwnFormula(const sdk::Params& params, const sdk::Env& env) : plain_(params, env) {}

  tenon_claim claim(const tenon_attn& a, const tenon_kv_view& view, const tenon_bounds& b) const {
    if (view.format->k.scale != 0) throw sdk::Refused("no reader for scales");
    return plain_.claim(a, view, b);
  }
  tenon_kv_format preferred_format() const { return plain_.preferred_format(); }
  void record(tenon_attn a, const tenon_attn_call& call, sdk::Recorder& r) const {
    a.scale *= 2;
    plain_.record(a, call, r);
  }

 private:
  Plain plain_;
};

}  // namespace tenon::bad

using tenon::bad::OwnFormula;
TENON_PLUGIN(OwnFormula);
