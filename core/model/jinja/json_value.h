// This makes values of templates from JSON.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "value.h"

namespace tenon::jinja {

// Texts, and the keys of objects, are the user's. Throws Failure for an integer beyond 64 bits.
Value from_json(const boost::json::value& value);

}  // namespace tenon::jinja
