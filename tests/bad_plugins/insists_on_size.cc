// This plugin takes a host whose struct is longer for one that it cannot work with.
#include "altered.h"

namespace {

tenon_status create(const tenon_params* params, const tenon_env* env, void** self, tenon_reason* why) {
  if (env->host->h.size != sizeof(tenon_host)) {
    tenon::sdk::fill_reason(why, "another host than it was built for");
    return TENON_REFUSED;
  }
  return tenon::sdk::detail::component<tenon::bad::Good>().create(params, env, self, why);
}

}  // namespace

TENON_ALTERED_PLUGIN(it.component.create = &create;);
