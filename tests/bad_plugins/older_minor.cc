// This plugin is from the past: its table ends before record_accept, and what lies after it is no part of it.
#include "altered.h"

namespace {

const void* shorter(void*, const char* id) noexcept {
  static const tenon_sampler kTable = [] {
    tenon_sampler t = *tenon::bad::Good::table();
    t.h.size = offsetof(tenon_sampler, record_accept);
    t.record_accept = [](void*, const tenon_sampling*, const tenon_candidates*, const tenon_recorder*,
                         tenon_reason*) -> tenon_status { return TENON_ERROR; };
    return t;
  }();
  return std::string_view(id) == "sampler/1" ? &kTable : nullptr;
}

}  // namespace

TENON_ALTERED_PLUGIN(it.component.interface = &shorter;);
