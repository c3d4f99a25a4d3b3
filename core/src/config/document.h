#pragma once

#include <string>
#include <vector>

#include "tenon/core/config.h"
#include "tree.h"

namespace tenon {

struct ConfigDocument::Data {
  std::string file;                  // the topmost layer's
  std::vector<std::string> sources;  // these files and options stand in the order in which they count
  config::Table root;
};

}  // namespace tenon
