// Every chat template has these functions: range, dict, namespace, raise_exception and strftime_now.
#pragma once

#include <ctime>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "callable.h"

namespace tenon::jinja {

// strftime_now formats `now`.
std::vector<std::pair<std::string_view, std::shared_ptr<const Callable>>> functions(const std::tm& now);

// Returns whether Jinja has it and it is not supported here: a template that reads the name is refused.
bool is_unsupported_function(std::string_view name);

}  // namespace tenon::jinja
