// XGrammar turns a schema into rules, and leaves out in silence what it has no rules for. So this gives it only schemas
// of which it heeds everything, and refuses the rest by name. XGrammar heeds
//  - of a schema with $ref, const, enum, anyOf, oneOf or allOf nothing else: beside one of them there may be no other
//    keyword that restricts the value, but a `type` that says nothing new;
//  - of a schema with a type the keywords of that type in kOfType, some of them not together;
//  - patterns that its automata know. With any other one it would write strings that are no JSON.
// The rules may leave out texts that a schema allows: here a pattern has to match the whole text, and
// properties stand in the order of the schema.
//
// Two of its rules are rewritten, as text. One lets control characters into strings of limited length.
// The other escapes characters in many ways, so that a name that stands in `properties` could come again
// as an additional one, spelled otherwise.
#include "schema.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <vector>

#include "grammar_functor.h"
#include "tenon/sdk/error.h"

namespace tenon::grammar_xgrammar {
namespace {

using Json = picojson::value;
using Object = picojson::object;
using Names = std::set<std::string, std::less<>>;

constexpr uint32_t kMostDepth = 64;  // schemas lie in schemas: the time to compile grows with the cube

// These say nothing about the value.
const Names& annotations() {
  static const Names kNames = {"$comment",         "$defs",         "$id",      "$schema",     "contentEncoding",
                               "contentMediaType", "contentSchema", "default",  "definitions", "deprecated",
                               "description",      "discriminator", "example",  "examples",    "id",
                               "readOnly",         "title",         "writeOnly"};
  return kNames;
}
// If several of these are there, XGrammar heeds the first in this list.
constexpr std::array kAlternatives = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
struct OfType {
  const char* type;
  Names keywords;
};
const std::vector<OfType>& of_types() {
  static const std::vector<OfType> kOfType = {
      {"number", {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}},
      {"string", {"format", "maxLength", "minLength", "pattern"}},
      {"array", {"items", "maxItems", "minItems", "prefixItems", "uniqueItems"}},
      {"object",
       {"additionalProperties", "maxProperties", "minProperties", "patternProperties", "properties", "required"}}};
  return kOfType;
}

class Checker {
 public:
  explicit Checker(bool closed) : closed_(closed) {}

  // `schema` is one of the schemas at `path` ("#/properties/a").
  void check(Json& schema, const std::string& path) {
    if (schema.is<bool>()) return;
    if (!schema.is<Object>()) refuse(path, "a schema is an object or true, and this is " + schema.serialize());
    if (++depth_ > kMostDepth)
      refuse(path, "schemas stand in each other more than " + std::to_string(kMostDepth) + " deep");
    Object& keywords = schema.get<Object>();
    for (const char* key : {"$defs", "definitions"}) check_members(keywords, key, path);
    const auto found = std::find_if(kAlternatives.begin(), kAlternatives.end(),
                                    [&](const char* key) { return keywords.count(key) != 0; });
    if (found != kAlternatives.end()) {
      check_alternative(keywords, *found, path);
    } else {
      check_type(keywords, path);
    }
    --depth_;
  }

 private:
  [[noreturn]] static void refuse(const std::string& path, const std::string& problem) {
    throw sdk::Refused(path + ": " + problem);
  }
  [[noreturn]] static void refuse_keyword(const std::string& path, const std::string& key, const std::string& why) {
    refuse(path, "\"" + key + "\" is not supported" + why);
  }

  // Checks each member of an object of schemas, which is there or not.
  void check_members(Object& keywords, const char* key, const std::string& path) {
    if (keywords.count(key) == 0) return;
    Json& all = keywords[key];
    if (!all.is<Object>()) refuse(path, "\"" + std::string(key) + "\" is not an object");
    Object& members = all.get<Object>();
    for (const std::string& name : members.ordered_keys()) check(members[name], path + "/" + key + "/" + name);
  }
  void check_list(Object& keywords, const char* key, const std::string& path) {
    if (keywords.count(key) == 0) return;
    Json& all = keywords[key];
    if (!all.is<picojson::array>() || all.get<picojson::array>().empty()) {
      refuse(path, "\"" + std::string(key) + "\" is not a list of schemas");
    }
    auto& list = all.get<picojson::array>();
    for (size_t i = 0; i < list.size(); ++i) check(list[i], path + "/" + key + "/" + std::to_string(i));
  }
  void check_one(Object& keywords, const char* key, const std::string& path) {
    if (keywords.count(key) != 0) check(keywords[key], path + "/" + key);
  }

  void check_alternative(Object& keywords, const std::string& key, const std::string& path) {
    for (const std::string& other : keywords.ordered_keys()) {
      if (other == key || annotations().contains(other)) continue;
      const bool value = key == "const" || key == "enum";
      if (other == "type" && value && all_have_type(keywords[key], key == "enum", keywords["type"])) continue;
      refuse_keyword(path, other,
                     " beside \"" + key + "\"" + (other == "type" && value ? " with a value of another type" : ""));
    }
    for (const char* list : {"anyOf", "oneOf", "allOf"}) {
      if (key == list) check_list(keywords, list, path);
    }
    if (key == "allOf" && keywords["allOf"].get<picojson::array>().size() > 1) {
      refuse_keyword(path, key, " with more than one schema");
    }
  }

  static bool has_type(const Json& value, const std::string& type) {
    if (type == "string") return value.is<std::string>();
    if (type == "boolean") return value.is<bool>();
    if (type == "null") return value.is<picojson::null>();
    if (type == "array") return value.is<picojson::array>();
    if (type == "object") return value.is<Object>();
    if (type == "integer") return value.is<int64_t>();
    return type == "number" && (value.is<int64_t>() || value.is<double>());
  }
  static std::vector<std::string> types_in(const Json& type) {
    std::vector<std::string> names;
    if (type.is<std::string>()) names.push_back(type.get<std::string>());
    if (type.is<picojson::array>()) {
      for (const Json& one : type.get<picojson::array>()) {
        if (one.is<std::string>()) names.push_back(one.get<std::string>());
      }
    }
    return names;
  }
  static bool all_have_type(const Json& value, bool is_list, const Json& type) {
    const std::vector<std::string> names = types_in(type);
    const auto fits = [&](const Json& one) {
      return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return has_type(one, name); });
    };
    if (!is_list) return fits(value);
    if (!value.is<picojson::array>()) return false;
    const auto& list = value.get<picojson::array>();
    return std::all_of(list.begin(), list.end(), fits);
  }

  void check_type(Object& keywords, const std::string& path) {
    const OfType* family = nullptr;
    const std::vector<std::string> keys = keywords.ordered_keys();
    for (const std::string& key : keys) {
      if (key == "type" || annotations().contains(key)) continue;
      const auto found =
          std::find_if(of_types().begin(), of_types().end(), [&](const OfType& t) { return t.keywords.contains(key); });
      if (found == of_types().end()) refuse_keyword(path, key, "");
      if (keywords.count("type") == 0 && family != nullptr && family != &*found) {
        refuse(path, "a \"type\" is missing: there are keywords of the types " + std::string(family->type) + " and " +
                         found->type);
      }
      family = &*found;
    }
    // Such a schema allows any value of another type, and XGrammar would heed nothing of it.
    if (keywords.count("type") == 0 && family != nullptr) keywords["type"] = Json(std::string(family->type));
    check_string(keywords, path);
    check_array(keywords, path);
    check_object(keywords, path);
  }

  static void check_string(const Object& keywords, const std::string& path) {
    if (keywords.count("pattern") == 0) return;
    const Json& pattern = keywords.at("pattern");
    if (!pattern.is<std::string>()) refuse(path, "\"pattern\" is not a text");
    check_pattern(pattern.get<std::string>(), path + "/pattern");
    for (const char* other : {"format", "maxLength", "minLength"}) {
      if (keywords.count(other) != 0) refuse_keyword(path, other, " beside \"pattern\"");
    }
  }
  static void check_pattern(const std::string& pattern, const std::string& path) {
    if (std::any_of(pattern.begin(), pattern.end(), [](char c) { return c < ' ' || c > '~'; })) {
      refuse(path, "a pattern with characters outside of ASCII is not supported; \\uXXXX stands for one");
    }
    auto automaton = xgrammar::GrammarFSMBuilder::Regex(pattern, true);
    if (automaton.IsErr())
      refuse(path, "the pattern is not supported: " + std::string(std::move(automaton).UnwrapErr().what()));
    const auto fsm = std::move(automaton).Unwrap();
    std::unordered_set<int> reachable;
    fsm.GetReachableStates(&reachable);
    if (std::none_of(reachable.begin(), reachable.end(), [&](int state) { return fsm.IsEndState(state); })) {
      refuse(path, "no text matches the pattern without a character that JSON has to escape, which is not supported");
    }
  }

  void check_array(Object& keywords, const std::string& path) {
    check_one(keywords, "items", path);
    check_list(keywords, "prefixItems", path);
    if (keywords.count("uniqueItems") == 0) return;
    const Json& unique = keywords["uniqueItems"];
    if (!unique.is<bool>() || unique.get<bool>()) refuse_keyword(path, "uniqueItems", "");
    keywords.erase("uniqueItems");
  }

  void check_object(Object& keywords, const std::string& path) {
    check_members(keywords, "properties", path);
    check_members(keywords, "patternProperties", path);
    check_one(keywords, "additionalProperties", path);
    const Json additional =
        keywords.count("additionalProperties") != 0 ? keywords["additionalProperties"] : Json(!closed_);
    const bool open = !additional.is<bool>() || additional.get<bool>();
    Names names;
    if (keywords.count("properties") != 0) {
      for (const std::string& name : keywords["properties"].get<Object>().ordered_keys()) names.insert(name);
    }
    check_required(keywords, names, path);
    const auto escaped = [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' '; };
    for (const std::string& name : names) {
      if (open && std::any_of(name.begin(), name.end(), escaped)) {
        refuse(path, "a property whose name has to be escaped is not supported beside additional ones");
      }
    }
    if (keywords.count("patternProperties") != 0) check_pattern_properties(keywords, path);
    if (keywords.count("minProperties") != 0 && (open || keywords.count("patternProperties") != 0)) {
      refuse_keyword(path, "minProperties", " where properties may have any name, since one could come twice");
    }
  }
  void check_required(Object& keywords, const Names& names, const std::string& path) const {
    if (keywords.count("required") == 0) return;
    if (!keywords["required"].is<picojson::array>()) refuse(path, "\"required\" is not a list of names");
    for (const Json& name : keywords["required"].get<picojson::array>()) {
      if (!name.is<std::string>()) refuse(path, "\"required\" is not a list of names");
      if (!names.contains(name.get<std::string>())) {
        refuse(path,
               "\"" + name.get<std::string>() + "\" is required and not among the properties, which is not supported");
      }
    }
  }
  void check_pattern_properties(Object& keywords, const std::string& path) const {
    const Object& patterns = keywords["patternProperties"].get<Object>();
    if (patterns.size() != 1) refuse_keyword(path, "patternProperties", " with more than one pattern");
    check_pattern(patterns.ordered_keys().front(), path + "/patternProperties");
    if (keywords.count("properties") != 0) refuse_keyword(path, "patternProperties", " beside \"properties\"");
    if (keywords.count("additionalProperties") == 0) keywords["additionalProperties"] = Json(false);
    const Json& additional = keywords["additionalProperties"];
    if (!additional.is<bool>() || additional.get<bool>()) {
      refuse_keyword(path, "patternProperties", " beside \"additionalProperties\" other than false");
    }
  }

  bool closed_;
  uint32_t depth_ = 0;
};

// XGrammar writes a character from U+0080 on as \xHH, and reads as many digits after \x as there are: \u has four.
std::string with_whole_escapes(std::string_view line) {
  constexpr size_t kDigits = 2;
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    out += line[i];
    if (line[i] != '\\' || i + 1 == line.size()) continue;
    ++i;
    if (line[i] == 'x' && i + kDigits < line.size()) {
      out += "u00";
    } else {
      out += line[i];
    }
  }
  return out;
}

// See the top. The class of characters stands in no text: there a quotation mark has three characters before it.
std::string with_rules_of_json(const std::string& rules) {
  constexpr std::string_view kEscape = "basic_escape ::= ", kCharacters = R"([^\"\\\r\n])";
  std::string out;
  bool escapes = false;
  for (size_t begin = 0; begin < rules.size();) {
    const size_t end = std::min(rules.find('\n', begin), rules.size());
    std::string line = with_whole_escapes(std::string_view(rules).substr(begin, end - begin));
    if (line.starts_with(kEscape)) {
      line = std::string(kEscape) + R"((([\"\\bfnrt]) | ("u00" [01] [0-9a-f])))";
      escapes = true;
    }
    for (size_t at = 0; (at = line.find(kCharacters, at)) != line.npos;) {
      line.replace(at, kCharacters.size(), R"([^\0-\u001f\"\\])");
    }
    out += line + '\n';
    begin = end + 1;
  }
  if (!escapes) throw sdk::Failed("XGrammar has no rule basic_escape: this is another version of it");
  return out;
}

}  // namespace

picojson::value checked_schema(const std::string& text, bool closed) {
  Json schema;
  const char* begin = text.data();
  std::string problem;
  const char* const end = xgrammar::ParseJSON(schema, begin, begin + text.size(), &problem);
  if (!problem.empty()) throw sdk::Refused("it is no JSON: " + problem);
  if (text.find_first_not_of(" \t\r\n", static_cast<size_t>(end - begin)) != text.npos) {
    throw sdk::Refused("it is no JSON: something follows after the value");
  }
  Checker(closed).check(schema, "#");
  return schema;
}

xgrammar::Grammar grammar_of_schema(const std::string& text, bool any_whitespace, bool closed) {
  const xgrammar::Grammar grammar = xgrammar::Grammar::FromJSONSchema(
      checked_schema(text, closed).serialize(), any_whitespace, std::nullopt, std::nullopt, closed);
  return xgrammar::Grammar::FromEBNF(with_rules_of_json(grammar.ToString()));
}

}  // namespace tenon::grammar_xgrammar
