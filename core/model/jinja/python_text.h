// These write values as text as Python does: str(), repr(), json.dumps(), the operator %, str.format().
#pragma once

#include "callable.h"
#include "run.h"
#include "value.h"

namespace tenon::jinja {

// Returns what is printed of a value. Throws Failure for those that Python prints with an address.
Value to_text(Run& run, const Value& value);
// Appends that to a text.
void append_text(Run& run, Text& out, const Value& value);

// Returns a number as repr() has it: the shortest digits that read back the same.
std::string float_text(double number);

struct JsonStyle {
  bool ascii = false;  // everything else is escaped
  bool sorted = false;
  bool broken = false;  // lines are broken, and
  Text indent;          // each level is indented by this
  Text between_items{", ", Origin::kTemplate}, after_key{": ", Origin::kTemplate};
};
Value to_json(Run& run, const Value& value, const JsonStyle& style);

// This is `format % values`.
Value percent_format(Run& run, const Text& format, const Value& values);
// This is format.format(arguments).
Value brace_format(Run& run, const Text& format, const Arguments& arguments);

}  // namespace tenon::jinja
