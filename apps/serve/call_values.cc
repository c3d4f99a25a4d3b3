// A schema is walked for the types that it allows: references are followed, unions are united. A text is then read as the
// narrowest of the allowed types that it fits, and stays a text where it fits none.
#include "call_values.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace tenon::serve {
namespace {

namespace json = boost::json;

constexpr int kMostSteps = 16;  // schemas may refer to each other for ever

JsonTypes type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::string:
      return kText;
    case json::kind::int64:
    case json::kind::uint64:
      return kInteger;
    case json::kind::double_:
      return kFraction;
    case json::kind::bool_:
      return kBoolean;
    case json::kind::null:
      return kNull;
    case json::kind::array:
      return kArray;
    case json::kind::object:
      return kObject;
  }
  return kAnyType;
}

JsonTypes types_named(const json::value& name) {
  if (!name.is_string()) return 0;
  const std::string_view text = name.get_string();
  if (text == "string") return kText;
  if (text == "integer") return kInteger;
  if (text == "number") return kInteger | kFraction;
  if (text == "boolean") return kBoolean;
  if (text == "null") return kNull;
  if (text == "array") return kArray;
  return text == "object" ? kObject : 0;
}

// Returns the sum of what a function says of each member of a list; of the value itself if it is no list.
template <class F>
JsonTypes any_of(const json::value& list, F&& types) {
  if (!list.is_array()) return types(list);
  JsonTypes all = 0;
  for (const json::value& one : list.get_array()) all |= types(one);
  return all;
}

// Adds up the types that a schema and those that it is a choice of let a value have. Schemas refer to each other and to
// themselves, so each is looked at once, and not too far from the first.
class TypesOf {
 public:
  explicit TypesOf(const json::value& root) : root_(root) {}

  JsonTypes in(const json::value& schema, int steps = kMostSteps) {
    const json::value& found = resolved(schema, root_);
    const json::object* keywords = found.if_object();
    if (keywords == nullptr || steps == 0) return kAnyType;
    if (!seen_.insert(&found).second) return 0;
    if (const json::value* one = keywords->if_contains("const")) return type_of(*one);
    if (const json::value* values = keywords->if_contains("enum")) return any_of(*values, type_of);
    if (const json::value* names = keywords->if_contains("type")) return any_of(*names, types_named);
    for (const char* key : {"anyOf", "oneOf"}) {
      const json::value* choices = keywords->if_contains(key);
      if (choices != nullptr) return any_of(*choices, [&](const json::value& one) { return in(one, steps - 1); });
    }
    return kAnyType;
  }

 private:
  const json::value& root_;
  std::set<const json::value*> seen_;
};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

}  // namespace

const json::value& resolved(const json::value& schema, const json::value& root) {
  const json::value* found = &schema;
  for (int step = 0; step < kMostSteps && found->is_object(); ++step) {
    const json::object& keywords = found->get_object();
    const json::value *reference = keywords.if_contains("$ref"), *all = keywords.if_contains("allOf");
    if (reference != nullptr && reference->is_string() && reference->get_string().starts_with('#')) {
      json::error_code error;
      const json::value* there = root.find_pointer(std::string_view(reference->get_string()).substr(1), error);
      if (there == nullptr) return *found;
      found = there;
    } else if (all != nullptr && all->is_array() && all->get_array().size() == 1) {
      found = &all->get_array().front();
    } else {
      return *found;
    }
  }
  return *found;
}

JsonTypes types_in(const json::value& schema, const json::value& root) {
  const JsonTypes types = TypesOf(root).in(schema);
  return types == 0 ? kAnyType : types;
}

json::value value_of(std::string_view text, JsonTypes types) {
  const json::value itself(text);
  if (types == kText) return itself;
  json::error_code error;
  const json::value value = json::parse(text, error);
  if (!error && (type_of(value) & types) != 0) return value;
  if ((types & kText) != 0) return itself;
  const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::string word = lower_case(text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first));
  if ((types & kBoolean) != 0 && (word == "true" || word == "false")) return word == "true";
  if ((types & kNull) != 0 && (word == "none" || word == "null")) return nullptr;
  return error ? itself : value;
}

ParameterTypes::ParameterTypes(const json::array& tools) {
  for (const json::value& tool : tools) {
    const json::object& function = tool.at("function").get_object();
    const json::value* stated = function.if_contains("parameters");
    if (stated == nullptr) continue;
    const json::value& schema = resolved(*stated, *stated);
    const json::value* properties = schema.is_object() ? schema.get_object().if_contains("properties") : nullptr;
    if (properties == nullptr || !properties->is_object()) continue;
    auto& types = types_[std::string(function.at("name").get_string())];
    for (const auto& [key, value] : properties->get_object()) types[std::string(key)] = types_in(value, *stated);
  }
}

JsonTypes ParameterTypes::of(std::string_view function, std::string_view parameter) const {
  const auto types = types_.find(function);
  if (types == types_.end()) return kAnyType;
  const auto found = types->second.find(parameter);
  return found == types->second.end() ? kAnyType : found->second;
}

}  // namespace tenon::serve
