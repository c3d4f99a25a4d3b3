// This plugin says something while it is initialized, and then that it cannot work here.
#include "altered.h"

namespace {

tenon_status init(const tenon_host* host, tenon_reason* why) {
  host->log(host->ctx, 1, "hello");
  tenon::sdk::fill_reason(why, "no licence for this host");
  return TENON_REFUSED;
}

}  // namespace

TENON_ALTERED_PLUGIN_WITH_INIT(&init, static_cast<void>(it););
