// The system's error of the last call that failed in this thread.
#pragma once

#include <cerrno>
#include <system_error>

namespace tenon {

inline std::error_code last_error() {
  return {errno, std::generic_category()};
}

}  // namespace tenon
