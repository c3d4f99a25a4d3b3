#pragma once

#include <string>
#include <vector>

#include "tenon/core/config.h"
#include "tree.h"

namespace tenon {

struct ConfigDocument::Data {
  std::string file;                  // the topmost layer's
  std::vector<std::string> sources;  // files and options in the order in which they count
  config::Table root;
};

}  // namespace tenon
