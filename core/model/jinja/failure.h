// A failure is something wrong while a template is read or runs, before it is known where.
#pragma once

#include <stdexcept>
#include <string>

namespace tenon::jinja {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tenon::jinja
