// Each test is a function of the value and its arguments; kTests has all of them by the names that Jinja gives them,
// which include signs such as == (jinja2/tests.py). A test that is given an argument too many or too few is a failure.
#include "tests.h"

#include <algorithm>

#include "filters.h"
#include "operators.h"
#include "python_text.h"
#include "string_ops.h"

namespace tenon::jinja {
namespace {

template <bool (*kHolds)(const Value& value)>
bool alone(Run&, const Value& value, const Arguments& arguments) {
  const Parameters p("the test", arguments, {}, 0);
  return kHolds(value);
}

template <Comparison kComparison>
bool compared(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p("the test", arguments, {"other"}, 1);
  return compare(run, kComparison, value, p[0]);
}

// Returns whether a number leaves this rest when it is divided by `by`.
bool leaves(Run& run, const Value& value, const Value& by, int64_t rest) {
  return equal(calculate(run, Operator::kModulo, value, by), rest);
}
template <int64_t kRest>
bool parity(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p("the test", arguments, {}, 0);
  return leaves(run, value, int64_t{2}, kRest);
}
bool divisible_by(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p("the test divisibleby", arguments, {"num"}, 1);
  return leaves(run, value, p[0], 0);
}

bool same_as(Run&, const Value& value, const Arguments& arguments) {
  const Parameters p("the test sameas", arguments, {"other"}, 1);
  if (value.as_text() != nullptr || value.as_double() != nullptr)
    throw Failure("the test sameas of a " + std::string(value.type()) + " is not supported");
  return value.same(p[0]);
}

template <Class kOf>
bool in_case(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p("the test", arguments, {}, 0);
  run.charge(value.weight());
  return is_all(*to_text(run, value).as_text(), kOf);
}

bool is_defined(const Value& value) {
  return value.as_undefined() == nullptr;
}
bool is_undefined(const Value& value) {
  return value.as_undefined() != nullptr;
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.as_bool() != nullptr;
}
bool is_true(const Value& value) {
  return value.as_bool() != nullptr && *value.as_bool();
}
bool is_false(const Value& value) {
  return value.as_bool() != nullptr && !*value.as_bool();
}
bool is_integer(const Value& value) {
  return value.as_integer() != nullptr;
}
bool is_float(const Value& value) {
  return value.as_double() != nullptr;
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.as_text() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.as_dict() != nullptr;
}
// Returns whether the value has a length and elements. An undefined one has both, and so passes.
bool is_sequence(const Value& value) {
  return value.as_text() != nullptr || value.as_dict() != nullptr || value.as_undefined() != nullptr ||
         (value.as_sequence() != nullptr && value.as_sequence()->has_elements());
}
bool is_iterable(const Value& value) {
  return value.as_text() != nullptr || value.as_dict() != nullptr || value.as_undefined() != nullptr ||
         value.as_sequence() != nullptr || value.as_loop() != nullptr;
}
bool is_callable(const Value& value) {
  return value.as_callable() != nullptr || value.as_undefined() != nullptr || value.as_loop() != nullptr;
}
bool is_escaped(const Value& value) {
  return value.as_text() != nullptr && value.as_text()->safe();
}
bool is_filter(const Value& value) {
  return value.as_text() != nullptr && find_filter(value.as_text()->bytes()) != nullptr;
}
bool is_test(const Value& value) {
  return value.as_text() != nullptr && find_test(value.as_text()->bytes()) != nullptr;
}

constexpr Test kTests[] = {
    {"!=", compared<Comparison::kUnequal>},
    {"<", compared<Comparison::kLess>},
    {"<=", compared<Comparison::kLessEqual>},
    {"==", compared<Comparison::kEqual>},
    {">", compared<Comparison::kGreater>},
    {">=", compared<Comparison::kGreaterEqual>},
    {"boolean", alone<is_boolean>},
    {"callable", alone<is_callable>},
    {"defined", alone<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", compared<Comparison::kEqual>},
    {"equalto", compared<Comparison::kEqual>},
    {"escaped", alone<is_escaped>},
    {"even", parity<0>},
    {"false", alone<is_false>},
    {"filter", alone<is_filter>},
    {"float", alone<is_float>},
    {"ge", compared<Comparison::kGreaterEqual>},
    {"greaterthan", compared<Comparison::kGreater>},
    {"gt", compared<Comparison::kGreater>},
    {"in", compared<Comparison::kIn>},
    {"integer", alone<is_integer>},
    {"iterable", alone<is_iterable>},
    {"le", compared<Comparison::kLessEqual>},
    {"lessthan", compared<Comparison::kLess>},
    {"lower", in_case<Class::kLower>},
    {"lt", compared<Comparison::kLess>},
    {"mapping", alone<is_mapping>},
    {"ne", compared<Comparison::kUnequal>},
    {"none", alone<is_none>},
    {"number", alone<is_number>},
    {"odd", parity<1>},
    {"sameas", same_as},
    {"sequence", alone<is_sequence>},
    {"string", alone<is_string>},
    {"test", alone<is_test>},
    {"true", alone<is_true>},
    {"undefined", alone<is_undefined>},
    {"upper", in_case<Class::kUpper>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests), [&](const Test& t) { return t.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace tenon::jinja
