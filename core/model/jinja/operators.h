// These calculate as Python's operators do, and find in values what Jinja's dots and brackets do. All throw Failure.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "run.h"
#include "value.h"

namespace tenon::jinja {

enum class Operator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class Comparison : uint8_t { kEqual, kUnequal, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

Value calculate(Run& run, Operator op, const Value& a, const Value& b);
Value negate(const Value& value);
bool compare(Run& run, Comparison comparison, const Value& a, const Value& b);
bool less(Run& run, const Value& a, const Value& b);
bool contains(Run& run, const Value& container, const Value& item);

// Returns what int() makes of a number.
int64_t to_integer(double number);

// Returns what a loop over the value goes through. An iterator is used up by it.
std::shared_ptr<const Sequence> items_of(Run& run, const Value& value);
// This is len().
int64_t length_of(Run& run, const Value& value);

// This is value.name: it gives an attribute or a method, else an element.
Value attribute_of(Run& run, const Value& value, const Text& name);
// This is value[key]: it gives an element, else an attribute or a method.
Value item_of(Run& run, const Value& value, const Value& key);

struct SliceBounds {
  std::optional<int64_t> start, stop, step;
};
Value slice_of(Run& run, const Value& value, const SliceBounds& bounds);

Values characters_of(Run& run, const Text& text);

// Returns the text with the characters escaped that mean something in HTML; a safe text is returned as it is.
Text html_escaped(const Text& text);

[[noreturn]] void fail_undefined(const Undefined& undefined);

}  // namespace tenon::jinja
