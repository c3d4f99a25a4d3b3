// Some forms of calls have each argument as a text, without quotation marks. What such a text stands for is decided by
// the schema of the function's arguments.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tenon::serve {

// A set of JSON's types has a bit for each.
using JsonTypes = uint8_t;
constexpr JsonTypes kText = 1, kInteger = 2, kFraction = 4, kBoolean = 8, kNull = 16, kArray = 32, kObject = 64,
                    kAnyType = 127;

// Returns the types that a schema lets a value have. References are looked up in `root`, the schema around it. A schema
// that says nothing of types, or that cannot be understood, lets it have any.
JsonTypes types_in(const boost::json::value& schema, const boost::json::value& root);

// Follows references in `root`, and takes the one schema of an allOf for that. Returns the schema itself where there is
// nothing to follow, or nothing to be found.
const boost::json::value& resolved(const boost::json::value& schema, const boost::json::value& root);

// Returns what a text stands for that may be of these types: itself if it can be nothing else; else what it is as JSON,
// if that is of these types. Where no text is allowed, Python's True, False and None count as JSON. A text that fits no
// type is the JSON that it is, or itself.
boost::json::value value_of(std::string_view text, JsonTypes types);

// Knows the types of the arguments of all functions of a request. It never changes.
class ParameterTypes {
 public:
  // `tools` are those of a body, each with a function that has a name.
  explicit ParameterTypes(const boost::json::array& tools);

  // Returns kAnyType for functions and arguments that are not known.
  JsonTypes of(std::string_view function, std::string_view parameter) const;

 private:
  std::map<std::string, std::map<std::string, JsonTypes, std::less<>>, std::less<>> types_;
};

}  // namespace tenon::serve
