// A scheme that packs weights for a GPU may offer to hold them there a second time, as plain numbers: products of many
// rows multiply those, and otherwise have to unpack weights in every step. All such schemes have this parameter.
#pragma once

#include "tenon/sdk/params.h"

namespace tenon::sdk {

inline constexpr const char* kPlainCopy = "plain_copy";
constexpr tenon_param_spec plain_copy_param() {
  return boolean({.name = kPlainCopy,
                  .doc = "on a GPU, hold the weights a second time, as plain floats, for steps of many rows, which "
                         "otherwise unpack them or take longer"});
}

}  // namespace tenon::sdk
