#pragma once

#include <string>
#include <vector>

#include "tenon/core/config.h"
#include "tree.h"

namespace tenon {

struct ConfigDocument::Data {
  std::vector<std::string> files;  // in the order of the layers
  config::Table root;
};

}  // namespace tenon
