// These are the methods and attributes of values.
#pragma once

#include <optional>
#include <string_view>

#include "callable.h"
#include "run.h"

namespace tenon::jinja {

// Returns the method, bound to its value; nothing if the type has none of the name; an undefined value for those that
// would change the value, which the sandbox keeps from templates. Throws Failure for one that is not supported.
std::optional<Value> find_method(const Value& value, std::string_view name);

// Returns whether Python has such a method and no type has it here: a template that calls it is refused.
bool is_unsupported_method(std::string_view name);

// Returns loop.index and the like. Throws Failure for those that are not supported.
std::optional<Value> loop_attribute(Run& run, const Loop& loop, std::string_view name);
bool is_unsupported_loop_attribute(std::string_view name);

}  // namespace tenon::jinja
