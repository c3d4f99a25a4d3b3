// This is the template's attention, but it writes one float before its output.
#include "spoilt_recorder.h"
#include "tenon/sdk/attention.h"

#pragma push_macro("TENON_PLUGIN")
#undef TENON_PLUGIN
#define TENON_PLUGIN(T) static_assert(true)
#include "../../sdk/template/attention/plain.cc"
#pragma pop_macro("TENON_PLUGIN")

namespace tenon::bad {

struct Overruns : sdk::Attention<Overruns> {
  static constexpr const char* kName = "overruns";
  static constexpr const char* kDoc = "Writes before its output.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = 1;

  Overruns(const sdk::Params& params, const sdk::Env& env) : plain_(params, env) {}

  tenon_claim claim(const tenon_attn& a, const tenon_kv_view& view, const tenon_bounds& b) const {
    return plain_.claim(a, view, b);
  }
  tenon_kv_format preferred_format() const { return plain_.preferred_format(); }
  void record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
    const SpoiltRecorder spoilt(r, [](const tenon_part& part) { static_cast<float*>(part.launch->ptr[kOut])[-1] = 0; });
    sdk::Recorder recorder = spoilt.recorder();
    plain_.record(a, call, recorder);
  }

 private:
  Plain plain_;
};

}  // namespace tenon::bad

using tenon::bad::Overruns;
TENON_PLUGIN(Overruns);
