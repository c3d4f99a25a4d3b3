// This plugin is from the future: it has a later minor version, and every table is longer than this host knows.
#include "altered.h"

namespace {

struct LongerTable {
  tenon_sampler now;
  void (*later)(void*);
};

const void* longer(void*, const char* id) noexcept {
  static const LongerTable kTable = [] {
    LongerTable t{*tenon::bad::Good::table(), [](void*) {}};
    t.now.h.size = sizeof(t);
    t.now.h.minor = TENON_ABI_MINOR + 1;
    return t;
  }();
  return std::string_view(id) == "sampler/1" ? &kTable : nullptr;
}

}  // namespace

TENON_ALTERED_PLUGIN(it.note.abi_minor = TENON_ABI_MINOR + 1; it.component.h.minor = TENON_ABI_MINOR + 1;
                     it.component.interface = &longer;);
