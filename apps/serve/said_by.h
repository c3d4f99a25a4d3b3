// An error of the engine is told to clients without its files and lines.
#pragma once

#include <string>

#include "tenon/core/error.h"

namespace tenon::serve {

inline std::string said_by(const Error& error) {
  std::string text;
  for (const Diagnostic& d : error.diagnostics()) text += (text.empty() ? "" : "; ") + d.message;
  return text;
}

}  // namespace tenon::serve
