// These are the tests of Jinja: what stands after `is`.
#pragma once

#include <string_view>

#include "callable.h"
#include "run.h"

namespace tenon::jinja {

struct Test {
  std::string_view name;
  // Throws Failure.
  bool (*holds)(Run& run, const Value& value, const Arguments& arguments);
};

// Returns nullptr for one that Jinja does not have.
const Test* find_test(std::string_view name);

}  // namespace tenon::jinja
