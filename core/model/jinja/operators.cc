// Integers have 64 bits, and a result beyond them is a failure, where Python would go on. Steps and bytes of a result
// that may be long, such as a text times a number, are charged to the run before it is made, so that a template cannot
// take more than its budget.
#include "operators.h"

#include <algorithm>
#include <cmath>

#include "methods.h"
#include "python_text.h"
#include "string_ops.h"

namespace tenon::jinja {
namespace {

std::string_view symbol(Operator op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<size_t>(op)];
}

void expect_defined(const Value& value) {
  if (value.as_undefined() != nullptr) fail_undefined(*value.as_undefined());
}

[[noreturn]] void fail_types(Operator op, const Value& a, const Value& b) {
  throw Failure("unsupported operand type(s) for " + std::string(symbol(op)) + ": '" + std::string(a.type()) +
                "' and '" + std::string(b.type()) + "'");
}

[[noreturn]] void fail_overflow() {
  throw Failure("a number is beyond 64 bits");
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Failure("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  if (base == 0 || base == 1 || base == -1) return exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow();
  }
  return result;
}

Value calculate_integers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  const bool divides = op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) throw Failure("division by zero");
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kDivide:
      return static_cast<double>(a) / static_cast<double>(b);
    case Operator::kFloorDivide:
      if (b == -1) return calculate_integers(Operator::kSubtract, 0, a);
      return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    case Operator::kModulo:
      if (b == -1) return int64_t{0};
      return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    case Operator::kPower:
      return power(a, b);
  }
  if (overflow) fail_overflow();
  return result;
}

Value calculate_doubles(Operator op, double a, double b) {
  const bool divides = op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) throw Failure("float division by zero");
  switch (op) {
    case Operator::kAdd:
      return a + b;
    case Operator::kSubtract:
      return a - b;
    case Operator::kMultiply:
      return a * b;
    case Operator::kDivide:
      return a / b;
    case Operator::kFloorDivide:
      return std::floor(a / b);
    case Operator::kModulo: {
      const double rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case Operator::kPower:
      break;
  }
  const double result = std::pow(a, b);
  if (!std::isfinite(result) && std::isfinite(a) && std::isfinite(b)) throw Failure("a power is no finite number");
  return result;
}

Value join(Run& run, const Text& a, const Text& b) {
  const bool escapes = a.safe() != b.safe();
  run.charge_bytes(a.size() + b.size());
  Text out;
  out.append(escapes ? html_escaped(a) : a);
  out.append(escapes ? html_escaped(b) : b);
  out.set_safe(a.safe() || b.safe());
  return out;
}

Value join(Run& run, const Sequence& a, const Sequence& b) {
  run.charge(a.items.size() + b.items.size());
  Values items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return std::make_shared<const Sequence>(a.kind, std::move(items));
}

Value repeat(Run& run, const Value& value, int64_t count) {
  const uint64_t times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (const Text* text = value.as_text()) {
    if (text->empty()) return value;
    run.charge_bytes(times > UINT32_MAX ? UINT64_MAX / 2 : times * text->size());
    Text out;
    for (uint64_t i = 0; i < times; ++i) out.append(*text);
    out.set_safe(text->safe());
    return out;
  }
  const Sequence& sequence = *value.as_sequence();
  if (sequence.items.empty()) return value;
  run.charge(times > UINT32_MAX ? UINT64_MAX / 2 : times * sequence.items.size());
  Values items;
  for (uint64_t i = 0; i < times; ++i) items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return std::make_shared<const Sequence>(sequence.kind, std::move(items));
}

bool repeats(const Value& value) {
  if (value.as_text() != nullptr) return true;
  const Sequence* sequence = value.as_sequence();
  return sequence != nullptr && (sequence->kind == Sequence::Kind::kList || sequence->kind == Sequence::Kind::kTuple);
}

// Returns -1, 0 or 1.
int order(Run& run, const Value& a, const Value& b, std::string_view sign) {
  const auto three_way = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  expect_defined(a);
  expect_defined(b);
  run.charge(std::min(a.weight(), b.weight()));
  if (a.is_integral() && b.is_integral()) return three_way(a.integral(), b.integral());
  if (a.is_number() && b.is_number()) {
    if (std::isnan(a.number()) || std::isnan(b.number())) throw Failure("a number that is not one has no order");
    return three_way(a.number(), b.number());
  }
  if (a.as_text() != nullptr && b.as_text() != nullptr) return three_way(a.as_text()->bytes(), b.as_text()->bytes());
  const Sequence *x = a.as_sequence(), *y = b.as_sequence();
  if (x == nullptr || y == nullptr || x->kind != y->kind || !repeats(a)) {
    throw Failure("'" + std::string(sign) + "' not supported between instances of '" + std::string(a.type()) +
                  "' and '" + std::string(b.type()) + "'");
  }
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    if (!equal(x->items[i], y->items[i])) return order(run, x->items[i], y->items[i], sign);
  }
  return three_way(x->items.size(), y->items.size());
}

}  // namespace

void fail_undefined(const Undefined& undefined) {
  throw Failure(*undefined.why);
}

Text html_escaped(const Text& text) {
  if (text.safe()) return text;
  constexpr std::string_view kSigns = "&<>'\"";
  constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  Text out;
  size_t plain = 0;
  for (size_t byte = 0; byte < text.size(); ++byte) {
    const size_t sign = kSigns.find(text.bytes()[byte]);
    if (sign == std::string_view::npos) continue;
    out.append_part(text, plain, byte);
    out.append(kEscapes[sign], text.origin_at(byte));
    plain = byte + 1;
  }
  out.append_part(text, plain, text.size());
  out.set_safe(true);
  return out;
}

int64_t to_integer(double number) {
  if (!(std::abs(number) < 9.2e18)) fail_overflow();
  return static_cast<int64_t>(number);
}

Value calculate(Run& run, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kModulo && a.as_text() != nullptr) {
    if (a.as_text()->safe()) throw Failure("the operator % of a text that the filter safe made is not supported");
    return percent_format(run, *a.as_text(), b);
  }
  expect_defined(a);
  expect_defined(b);
  if (a.is_integral() && b.is_integral()) return calculate_integers(op, a.integral(), b.integral());
  if (a.is_number() && b.is_number()) return calculate_doubles(op, a.number(), b.number());
  if (op == Operator::kAdd) {
    if (a.as_text() != nullptr && b.as_text() != nullptr) return join(run, *a.as_text(), *b.as_text());
    if (a.as_text() != nullptr) {
      throw Failure("can only concatenate str (not \"" + std::string(b.type()) + "\") to str");
    }
    if (repeats(a) && repeats(b) && b.as_text() == nullptr && a.type() == b.type()) {
      return join(run, *a.as_sequence(), *b.as_sequence());
    }
  }
  if (op == Operator::kMultiply && repeats(a) && b.is_integral()) return repeat(run, a, b.integral());
  if (op == Operator::kMultiply && repeats(b) && a.is_integral()) return repeat(run, b, a.integral());
  fail_types(op, a, b);
}

Value negate(const Value& value) {
  expect_defined(value);
  if (value.is_integral()) return calculate_integers(Operator::kSubtract, 0, value.integral());
  if (value.as_double() != nullptr) return -value.number();
  throw Failure("bad operand type for unary -: '" + std::string(value.type()) + "'");
}

bool less(Run& run, const Value& a, const Value& b) {
  return order(run, a, b, "<") < 0;
}

bool compare(Run& run, Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual:
      run.charge(std::min(a.weight(), b.weight()));
      return equal(a, b);
    case Comparison::kUnequal:
      return !compare(run, Comparison::kEqual, a, b);
    case Comparison::kLess:
      return order(run, a, b, "<") < 0;
    case Comparison::kLessEqual:
      return order(run, a, b, "<=") <= 0;
    case Comparison::kGreater:
      return order(run, a, b, ">") > 0;
    case Comparison::kGreaterEqual:
      return order(run, a, b, ">=") >= 0;
    case Comparison::kIn:
      return contains(run, b, a);
    case Comparison::kNotIn:
      return !contains(run, b, a);
  }
  return false;
}

bool contains(Run& run, const Value& container, const Value& item) {
  if (const Text* text = container.as_text()) {
    if (item.as_text() == nullptr) {
      throw Failure("'in <string>' requires string as left operand, not " + std::string(item.type()));
    }
    run.charge(container.weight());
    return find_first(text->bytes(), item.as_text()->bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) {
    if (!hashable(item)) throw Failure("unhashable type: '" + std::string(item.type()) + "'");
    run.charge(dict->steps_to_find(item));
    return dict->find(item) != nullptr;
  }
  if (container.as_sequence() == nullptr && container.as_undefined() == nullptr) {
    throw Failure("argument of type '" + std::string(container.type()) + "' is not iterable");
  }
  const auto sequence = items_of(run, container);
  return std::any_of(sequence->items.begin(), sequence->items.end(),
                     [&](const Value& one) { return compare(run, Comparison::kEqual, one, item); });
}

Values characters_of(Run& run, const Text& text) {
  run.charge(text.size());
  Values characters;
  for (size_t byte = 0; byte < text.size();) {
    const size_t length = character_length(text.bytes(), byte);
    characters.emplace_back(text.part(byte, byte + length));
    byte += length;
  }
  return characters;
}

std::shared_ptr<const Sequence> items_of(Run& run, const Value& value) {
  const auto list = [](Values items) {
    return std::make_shared<const Sequence>(Sequence::Kind::kList, std::move(items));
  };
  if (const Sequence* sequence = value.as_sequence()) {
    run.charge(sequence->items.size());
    if (sequence->kind != Sequence::Kind::kIterator) return value.shared_sequence();
    return std::exchange(sequence->used_up, true) ? list({}) : value.shared_sequence();
  }
  if (value.as_undefined() != nullptr) return list({});
  if (const Dict* dict = value.as_dict()) {
    run.charge(dict->entries.size());
    return list(dict->keys());
  }
  if (const Text* text = value.as_text()) {
    return list(characters_of(run, *text));
  }
  throw Failure("'" + std::string(value.type()) + "' object is not iterable");
}

int64_t length_of(Run& run, const Value& value) {
  if (value.as_undefined() != nullptr) return 0;
  if (const Text* text = value.as_text()) {
    run.charge(value.weight());
    return static_cast<int64_t>(count_characters(text->bytes()));
  }
  if (value.as_dict() != nullptr) return static_cast<int64_t>(value.as_dict()->entries.size());
  if (value.as_loop() != nullptr) return static_cast<int64_t>(value.as_loop()->items->items.size());
  if (value.as_sequence() != nullptr && value.as_sequence()->has_length()) {
    return static_cast<int64_t>(value.as_sequence()->items.size());
  }
  throw Failure("object of type '" + std::string(value.type()) + "' has no len()");
}

namespace {

std::string object_name(const Value& value) {
  return value.is_none() ? "None" : std::string(value.type()) + " object";
}

Value no_attribute(const Value& value, const Text& name) {
  return Value::undefined("'" + object_name(value) + "' has no attribute '" + name.bytes().substr(0, 100) + "'");
}

// Returns an element, or nothing.
std::optional<Value> element_of(Run& run, const Value& value, const Value& key) {
  if (const Dict* dict = value.as_dict()) {
    run.charge(dict->steps_to_find(key));
    const Value* found = hashable(key) ? dict->find(key) : nullptr;
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (!key.is_integral()) return std::nullopt;
  const bool text = value.as_text() != nullptr;
  if (!text && (value.as_sequence() == nullptr || !value.as_sequence()->has_elements())) return std::nullopt;
  const int64_t length = length_of(run, value);
  const int64_t index = key.integral() < 0 ? key.integral() + length : key.integral();
  if (index < 0 || index >= length) return std::nullopt;
  if (!text) return value.as_sequence()->items[static_cast<size_t>(index)];
  const size_t byte = character_start(value.as_text()->bytes(), static_cast<size_t>(index));
  return value.as_text()->part(byte, byte + character_length(value.as_text()->bytes(), byte));
}

bool is_macro_attribute(std::string_view name) {
  return name == "name" || name == "arguments" || name == "caller" || name == "catch_kwargs" ||
         name == "catch_varargs" || name == "explicit_caller";
}

std::optional<Value> attribute_or_method(Run& run, const Value& value, const Text& name) {
  if (Namespace* space = value.as_namespace()) {
    const auto found = space->attributes.find(name.bytes());
    return found == space->attributes.end() ? std::nullopt : std::optional(found->second);
  }
  if (value.as_callable() != nullptr) {
    if (value.type() == "Macro" && is_macro_attribute(name.bytes())) {
      throw Failure("the attribute \"" + name.bytes() + "\" of a macro is not supported");
    }
    return std::nullopt;
  }
  if (const Loop* loop = value.as_loop()) return loop_attribute(run, *loop, name.bytes());
  return find_method(value, name.bytes());
}

}  // namespace

Value attribute_of(Run& run, const Value& value, const Text& name) {
  expect_defined(value);
  if (auto found = attribute_or_method(run, value, name)) return *found;
  if (auto found = element_of(run, value, name)) return *found;
  return no_attribute(value, name);
}

Value item_of(Run& run, const Value& value, const Value& key) {
  expect_defined(value);
  if (auto found = element_of(run, value, key)) return *found;
  if (key.as_text() == nullptr) {
    const std::string shown = key.is_integral() ? std::to_string(key.integral()) : "of type " + std::string(key.type());
    return Value::undefined(object_name(value) + " has no element " + shown);
  }
  if (auto found = attribute_or_method(run, value, *key.as_text())) return *found;
  return no_attribute(value, *key.as_text());
}

Value slice_of(Run& run, const Value& value, const SliceBounds& bounds) {
  expect_defined(value);
  const Text* text = value.as_text();
  if (text == nullptr && (value.as_sequence() == nullptr || !value.as_sequence()->has_elements())) {
    return Value::undefined(object_name(value) + " has no slices");
  }
  const int64_t step = bounds.step.value_or(1), length = length_of(run, value);
  if (step == 0) throw Failure("slice step cannot be zero");
  const int64_t least = step < 0 ? -1 : 0, most = step < 0 ? length - 1 : length;
  const auto clamp = [&](const std::optional<int64_t>& bound, int64_t otherwise) {
    if (!bound) return otherwise;
    return std::clamp(*bound < 0 ? *bound + length : *bound, least, most);
  };
  const int64_t start = clamp(bounds.start, step < 0 ? most : least),
                stop = clamp(bounds.stop, step < 0 ? least : most);
  run.charge(static_cast<uint64_t>(length));
  if (text != nullptr && step == 1) {
    const size_t begin = character_start(text->bytes(), static_cast<size_t>(start));
    return run.made(text->part(begin, std::max(begin, character_start(text->bytes(), static_cast<size_t>(stop)))));
  }
  const Values characters = text != nullptr ? characters_of(run, *text) : Values();
  const Values& items = text != nullptr ? characters : value.as_sequence()->items;
  Values picked;
  for (int64_t i = start; step < 0 ? i > stop : i < stop; i += step) {
    picked.push_back(items[static_cast<size_t>(i)]);
    if (step > length || step < -length) break;  // i does not overflow
  }
  if (text == nullptr) return std::make_shared<const Sequence>(value.as_sequence()->kind, std::move(picked));
  Text out;
  for (const Value& one : picked) out.append(*one.as_text());
  out.set_safe(text->safe());
  return run.made(std::move(out));
}

}  // namespace tenon::jinja
