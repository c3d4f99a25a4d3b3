// This selector's table lacks functions that every selector has.
#include "altered.h"

namespace {

const void* incomplete(void*, const char*) noexcept {
  static const tenon_sampler kTable = [] {
    tenon_sampler t = *tenon::bad::Good::table();
    t.encode = nullptr;
    t.record_select = nullptr;
    return t;
  }();
  return &kTable;
}

}  // namespace

TENON_ALTERED_PLUGIN(it.component.interface = &incomplete;);
