// Answers with a struct as large as it knows it, whatever room the host has for it.
#include "altered.h"

namespace {

const void* interface(void* self, const char* id) {
  static tenon_sampler table;
  const void* good = tenon::sdk::detail::component<tenon::bad::Good>().interface(self, id);
  if (good == nullptr) return nullptr;
  table = *static_cast<const tenon_sampler*>(good);
  table.claim = [](void*, const tenon_chain*, tenon_claim* out, tenon_reason*) -> tenon_status {
    *out = tenon::sdk::abi_struct<tenon_claim>();
    return TENON_OK;
  };
  return &table;
}

}  // namespace

TENON_ALTERED_PLUGIN(it.component.interface = &interface;);
