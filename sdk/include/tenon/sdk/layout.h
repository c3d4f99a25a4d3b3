// A plugin's note has the layout hash of its kind's interface: see tenon/abi/layout.h.
#pragma once

#include <string_view>

#include "tenon/abi/layout.h"

namespace tenon::sdk::layout {

// It gives the hash of a kind's interface, and "" for a kind that does not cross the boundary.
constexpr const char* of(std::string_view kind) {
#define TENON_IF_KIND(name, hash) \
  if (kind == (name)) return hash;
  TENON_LAYOUTS(TENON_IF_KIND)
#undef TENON_IF_KIND
  return "";
}

}  // namespace tenon::sdk::layout
