// This holds a template that was read.
#pragma once

#include <map>
#include <string>

#include "statements.h"

namespace tenon::jinja {

struct Program {
  std::string source;                                  // normalized
  std::map<std::string, uint32_t, std::less<>> names;  // their numbers
  ScopedBlock block;
};

}  // namespace tenon::jinja
