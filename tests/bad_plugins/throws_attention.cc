// This attention throws from every function but create.
#include "tenon/sdk/attention.h"

namespace tenon::bad {

struct ThrowsAttention : sdk::Attention<ThrowsAttention> {
  static constexpr const char* kName = "throws";
  static constexpr const char* kDoc = "Throws.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = 1;

  ThrowsAttention(const sdk::Params&, const sdk::Env&) {}

  tenon_claim claim(const tenon_attn&, const tenon_kv_view&, const tenon_bounds&) { throw sdk::Refused("claim threw"); }
  tenon_kv_format preferred_format() { throw std::bad_alloc(); }
  void record(const tenon_attn&, const tenon_attn_call&, sdk::Recorder&) { throw "text"; }
};

}  // namespace tenon::bad

using tenon::bad::ThrowsAttention;
TENON_PLUGIN(ThrowsAttention);
