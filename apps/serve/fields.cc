// Each getter notes that its field is known. A wrong type or a value out of range makes it throw ApiError with the
// field's name. It takes null for a field that is not there. finish() refuses fields that nobody asked for.
#include "fields.h"

#include <cmath>

namespace tenon::serve {
namespace {

// Returns a value as errors show it: a long one is cut.
std::string shown(const boost::json::value& value) {
  constexpr size_t kMost = 60;
  std::string text = boost::json::serialize(value);
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U)
    --end;  // the cut is not inside of a character
  return text.substr(0, end) + "...";
}

std::string shown(double number) {
  return boost::json::serialize(std::abs(number) < 1e15 && number == std::floor(number)
                                    ? boost::json::value(static_cast<int64_t>(number))
                                    : boost::json::value(number));
}

// 1 is 1.0.
bool same(const boost::json::value& a, const boost::json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

std::string range(double least, double most) {
  return "a number from " + shown(least) + " to " + shown(most);
}

}  // namespace

boost::json::object parse_object(const std::string& text) {
  constexpr size_t kDepth = 16;
  boost::json::parse_options options;
  options.max_depth = kDepth;
  boost::json::error_code problem;
  boost::json::value value = boost::json::parse(text, problem, {}, options);
  if (problem) throw ApiError(400, "the body is not JSON: " + problem.message(), "", "invalid_json");
  if (!value.is_object())
    throw ApiError(400, "the body is " + shown(value) + ", not a JSON object", "", "invalid_json");
  return std::move(value.as_object());
}

void Fields::fail(std::string_view field, const std::string& problem, const std::string& code) const {
  throw ApiError(400, name(field) + ": " + problem, name(field), code);
}

const boost::json::value* Fields::find(std::string_view field) {
  known_.emplace(field);
  const boost::json::value* value = object_.if_contains(field);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<bool> Fields::boolean(std::string_view field) {
  const boost::json::value* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) fail(field, shown(*value) + " is not true or false");
  return value->as_bool();
}

std::optional<int64_t> Fields::integer(std::string_view field, int64_t least, int64_t most) {
  const boost::json::value* value = find(field);
  if (value == nullptr) return std::nullopt;
  boost::json::error_code inexact;  // 2.0 is an integer, and 2.5 is none
  const auto number = value->is_number() ? value->to_number<int64_t>(inexact) : 0;
  if (!value->is_number() || inexact || number < least || number > most) {
    fail(field, shown(*value) + " is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

std::optional<double> Fields::number(std::string_view field, double least, double most) {
  const boost::json::value* value = find(field);
  if (value == nullptr) return std::nullopt;
  const auto number = value->is_number() ? value->to_number<double>() : 0;
  if (!value->is_number() || !(number >= least && number <= most)) {
    fail(field, shown(*value) + " is not " + range(least, most));
  }
  return number;
}

std::optional<std::string> Fields::text(std::string_view field) {
  const boost::json::value* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(field, shown(*value) + " is not a text");
  return std::string(value->as_string());
}

void Fields::accept(std::initializer_list<std::string_view> names) {
  known_.insert(names.begin(), names.end());
}

void Fields::only(std::string_view field, std::initializer_list<boost::json::value> values) {
  const boost::json::value* given = find(field);
  if (given == nullptr) return;
  std::string list;
  for (const boost::json::value& value : values) {
    if (same(*given, value)) return;
    list += (list.empty() ? "" : " or ") + shown(value);
  }
  fail(field, shown(*given) + " is not supported; only " + list + " is", "unsupported_value");
}

void Fields::refuse(std::string_view field, const std::string& why) {
  if (find(field) != nullptr) fail(field, why, "unsupported_parameter");
}

void Fields::finish() const {
  for (const auto& member : object_) {
    if (known_.contains(std::string_view(member.key()))) continue;
    fail(member.key(), "the server does not know this field, which could change the answer", "unknown_parameter");
  }
}

}  // namespace tenon::serve
