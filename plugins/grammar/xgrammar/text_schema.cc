// A schema of texts becomes rules over characters. Since the text has no quotation marks, what ends it must not be within
// it: patterns, lengths and lists of texts are each combined with rules of texts without that end.
#include "text_schema.h"

#include <optional>
#include <string_view>

#include "json_schema_converter.h"
#include "schema.h"
#include "tenon/sdk/error.h"

namespace tenon::grammar_xgrammar {
namespace {

using Object = picojson::object;

// Quotes a character of ASCII for a string or a class of characters.
std::string quoted(char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  return std::string("\\x") + kDigits[byte >> 4U] + kDigits[byte & 15U];
}
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= ' ' && c != '"' && c != '\\' && c != 0x7F;
    out += plain ? std::string(1, c) : quoted(c);
  }
  return out + '"';
}

// Returns rules of texts that do not hold `end`. Such a text is in parts, each of which but the first begins with the
// first character of `end` and has it nowhere else; after[i] is how a part goes on that was like `end` for i
// characters.
std::string rules_without(const std::string& end) {
  const std::string first = quoted(end[0]), others = "[^" + first + "]*";
  std::string rules = "rest ::= " + others + " (\"" + first + "\" after1)*\n";
  for (size_t i = 1; i < end.size(); ++i) {
    const std::string next = quoted(end[i]);
    rules += "after" + std::to_string(i) + " ::= \"\" | [^" + first + next + "] " + others;
    if (i + 1 < end.size()) rules += " | \"" + next + "\" after" + std::to_string(i + 1);
    rules += '\n';
  }
  return rules;
}

// XGrammar keeps its table of formats for those that derive from its class.
struct Formats : xgrammar::JSONSchemaConverter {
  static std::optional<std::string> pattern_of(const std::string& format) { return JSONFormatToRegexPattern(format); }
};

// Returns a length that a schema states; `absent` if it states none.
int64_t length_in(const Object& schema, const char* key, int64_t absent) {
  if (schema.count(key) == 0) return absent;
  const picojson::value& value = schema.at(key);
  if (!value.is<int64_t>() || value.get<int64_t>() < 0) {
    throw sdk::Refused(std::string("#: \"") + key + "\" is no length");
  }
  return value.get<int64_t>();
}

std::string rules_of_choices(const picojson::array& choices, const std::string& end) {
  std::string rules = "root ::=";
  for (const picojson::value& one : choices) {
    if (!one.is<std::string>()) throw sdk::Refused("#: " + one.serialize() + " is no text");
    if (one.get<std::string>().find(end) != std::string::npos) {
      throw sdk::Refused("#: " + one.serialize() + " holds " + end + ", which ends a text here");
    }
    rules += (rules.ends_with('=') ? " " : " | ") + quoted(one.get<std::string>());
  }
  return rules;
}

std::string rules_of_lengths(const Object& schema, const std::string& end) {
  const int64_t least = length_in(schema, "minLength", 0), most = length_in(schema, "maxLength", -1);
  const std::string others = "[^" + quoted(end[0]) + "]{" + std::to_string(least);
  if (most >= 0) {
    if (most < least) throw sdk::Refused("#: \"maxLength\" is less than \"minLength\"");
    return "root ::= " + others + "," + std::to_string(most) + "}";
  }
  return "root ::= " + (least > 0 ? others + "} rest\n" : "rest\n") + rules_without(end);
}

}  // namespace

xgrammar::Grammar grammar_of_text(const std::string& text, const std::string& end) {
  if (end.size() < 2 || end[0] < '!' || end[0] > '~' || end.find(end[0], 1) != std::string::npos) {
    throw sdk::Refused("the end \"" + end + "\" does not begin with a character that it has once");
  }
  const picojson::value value = checked_schema(text, true);
  if (!value.is<Object>()) throw sdk::Refused("#: it does not allow texts alone");
  const Object& schema = value.get<Object>();
  if (schema.count("const") != 0) return xgrammar::Grammar::FromEBNF(rules_of_choices({schema.at("const")}, end));
  if (schema.count("enum") != 0 && schema.at("enum").is<picojson::array>()) {
    return xgrammar::Grammar::FromEBNF(rules_of_choices(schema.at("enum").get<picojson::array>(), end));
  }
  if (schema.count("type") == 0 || schema.at("type") != picojson::value("string")) {
    throw sdk::Refused("#: it does not allow texts alone");
  }
  if (schema.count("pattern") != 0) return xgrammar::Grammar::FromRegex(schema.at("pattern").get<std::string>());
  const bool formatted = schema.count("format") != 0 && schema.at("format").is<std::string>();
  const auto format = formatted ? Formats::pattern_of(schema.at("format").get<std::string>()) : std::nullopt;
  if (format && (schema.count("minLength") != 0 || schema.count("maxLength") != 0)) {
    throw sdk::Refused("#: a length beside \"format\" is not supported");
  }
  if (format) return xgrammar::Grammar::FromRegex(*format);
  return xgrammar::Grammar::FromEBNF(rules_of_lengths(schema, end));
}

}  // namespace tenon::grammar_xgrammar
