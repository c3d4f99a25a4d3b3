// A rule for each function has its name, the marks around it and its arguments. Where the arguments are one JSON
// object, its schema is a rule by %json. Where each has marks of its own, they come in the order of the schema, those
// that are not required or not; properties that the schema does not name do not come.
//
// A value that is always a text is written by %text, without quotation marks. One that may be a text beside others is
// so, too, if the schema restricts none of them, since then whatever it is read as is right (call_values.h). Any other
// value is JSON.
#include "call_rules.h"

#include <algorithm>
#include <set>

#include "grammar_fields.h"

namespace tenon::serve {
namespace {

namespace json = boost::json;

// These say nothing about a value.
bool is_annotation(std::string_view keyword) {
  static const std::set<std::string_view> kAnnotations = {
      "$comment",      "$defs",   "$id",      "$schema", "default",  "definitions", "deprecated", "description",
      "discriminator", "example", "examples", "id",      "readOnly", "title",       "writeOnly"};
  return kAnnotations.contains(keyword);
}

// Returns a keyword of a schema that is no annotation and none of `known`; "" if there is none.
std::string other_keyword(const json::object& schema, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : schema) {
    const std::string_view name = key;
    if (!is_annotation(name) && std::find(known.begin(), known.end(), name) == known.end()) return std::string(name);
  }
  return "";
}

// Says whether a schema restricts nothing but the types of a value: it may be a choice of schemas that do not either.
bool says_types_alone(const json::value& schema, const json::value& root) {
  const auto plain = [&](const json::value& one) {
    const json::value& found = resolved(one, root);
    if (found.is_bool()) return found.get_bool();
    return found.is_object() && other_keyword(found.get_object(), {"type"}).empty();
  };
  const json::value& found = resolved(schema, root);
  if (!found.is_object()) return plain(found);
  const json::object& keywords = found.get_object();
  for (const char* key : {"anyOf", "oneOf"}) {
    const json::value* list = keywords.if_contains(key);
    if (list == nullptr) continue;
    return list->is_array() && other_keyword(keywords, {key}).empty() &&
           std::all_of(list->get_array().begin(), list->get_array().end(), plain);
  }
  return plain(found);
}

class CallRules {
 public:
  CallRules(const CallForm& form, bool several) : form_(form), several_(several) {}

  ForcedCall made(const json::array& tools) {
    std::string calls;
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string number = std::to_string(i);
      calls += (i == 0 ? "" : " | ") + std::string("call") + number;
      add_call(number, tools[i].at("function").get_object());
    }
    forced_.grammar.form = GrammarForm::kEbnf;
    forced_.grammar.closed = true;
    forced_.grammar.text = root(calls) + rules_;
    return std::move(forced_);
  }

 private:
  // Returns a mark as rules have it: a control token by its id, as it has no text.
  std::string mark(std::string_view name) const {
    const auto token = form_.tokens.find(name);
    return token == form_.tokens.end() ? quoted_in_rules(name) : "Token(" + std::to_string(token->second) + ")";
  }
  void add(const std::string& name, const std::string& body) { rules_ += name + " ::= " + body + "\n"; }
  void refuse(const std::string& problem) {
    if (forced_.problem.empty()) forced_.problem = problem;
  }

  // Returns the first rules, and says how the answer begins.
  std::string root(const std::string& calls) {
    switch (form_.format) {
      case CallFormat::kHarmony:
        forced_.begins = "<|channel|>commentary to=functions.";
        return "root ::= " + calls + "\n";
      case CallFormat::kQwenCoder:
        forced_.begins = "<tool_call>\n";
        return "root ::= " + calls + "\n";
      case CallFormat::kGlm:
        forced_.begins = "\n<tool_call>";
        return "root ::= " + calls + "\nline ::= \"\\n\" | \"\"\n";
      default: {
        forced_.begins = std::string(kCallsBegin) + std::string(kCallBegin);
        const std::string line = form_.format == CallFormat::kDeepSeek3 ? "\"\\n\" " : "";
        const std::string more = several_ ? " (" + line + mark(kCallBegin) + " call)*" : "";
        return "root ::= call" + more + " " + mark(kCallsEnd) + "\ncall ::= " + calls + "\n";
      }
    }
  }

  void add_call(const std::string& number, const json::object& function) {
    const std::string_view name = function.at("name").get_string();
    const std::string call = "call" + number, arguments = "arguments" + number;
    if (!is_plain_name(name)) refuse("the function \"" + std::string(name) + "\" has blanks, <, > or { in its name");
    if (form_.format == CallFormat::kQwenCoder) {
      add(call, quoted_in_rules("<function=" + std::string(name) + ">\n") + parameters(number, function) +
                    " \"</function>\\n\" " + mark("</tool_call>"));
      return;
    }
    if (form_.format == CallFormat::kGlm) {
      add(call, quoted_in_rules(name) + " line" + parameters(number, function) + " " + mark("</tool_call>"));
      return;
    }
    if (form_.format == CallFormat::kHarmony) {
      const std::string header = mark("<|constrain|>") + " \"json\" " + mark("<|message|>");
      add(call, quoted_in_rules(std::string(name) + " ") + " " + header + " " + arguments);
    } else if (form_.format == CallFormat::kDeepSeek3) {
      add(call, "\"function\" " + mark(kCallSeparator) + " " + quoted_in_rules(std::string(name) + "\n```json\n") +
                    " " + arguments + " \"\\n```\" " + mark(kCallEnd));
    } else {
      add(call, quoted_in_rules(name) + " " + mark(kCallSeparator) + " " + arguments + " " + mark(kCallEnd));
    }
    add(arguments, "%json " + json::serialize(schema_of_arguments(function, "")));
  }

  // Adds the rules of a function's parameters, and returns what stands for all of them in the rule of the call.
  std::string parameters(const std::string& number, const json::object& function) {
    const json::value stated = schema_of_arguments(function, "");
    const json::value& schema = resolved(stated, stated);
    const std::string of_function = " of the function \"" + std::string(function.at("name").get_string()) + "\"";
    if (!schema.is_object()) {
      refuse("the schema" + of_function + " is not an object");
      return "";
    }
    const json::object& keywords = schema.get_object();
    const std::string other = other_keyword(keywords, {"type", "properties", "required", "additionalProperties"});
    if (!other.empty())
      refuse("\"" + other + "\" in the schema" + of_function + " is not supported in the model's form");
    if (types_in(schema, stated) != kObject && types_in(schema, stated) != kAnyType) {
      refuse("the arguments" + of_function + " are no object");
    }
    const json::value* properties = keywords.if_contains("properties");
    const json::object none;
    const json::object& all = properties != nullptr && properties->is_object() ? properties->get_object() : none;
    const std::set<std::string> required = required_in(keywords, all, of_function);
    std::string list;
    for (const auto& [key, value] : all) {
      const std::string at = number + "_" + std::to_string(count_++);
      if (!is_plain_name(key))
        refuse("the parameter \"" + std::string(key) + "\"" + of_function + " has blanks, <, > or {");
      list += " parameter" + at + (required.contains(std::string(key)) ? "" : "?");
      add_parameter(at, key);
      add_value("value" + at, value, stated);
    }
    return list;
  }

  std::set<std::string> required_in(const json::object& schema, const json::object& properties,
                                    const std::string& of_function) {
    std::set<std::string> names;
    const json::value* required = schema.if_contains("required");
    if (required == nullptr || !required->is_array()) return names;
    for (const json::value& one : required->get_array()) {
      if (!one.is_string() || !properties.contains(one.get_string())) {
        refuse(json::serialize(one) + of_function + " is required and not among the properties");
      } else {
        names.insert(std::string(one.get_string()));
      }
    }
    return names;
  }

  void add_parameter(const std::string& at, std::string_view key) {
    if (form_.format == CallFormat::kQwenCoder) {
      add("parameter" + at,
          quoted_in_rules("<parameter=" + std::string(key) + ">\n") + " value" + at + " \"\\n</parameter>\\n\"");
    } else {
      add("parameter" + at, mark("<arg_key>") + " " + quoted_in_rules(key) + " " + mark("</arg_key>") + " line " +
                                mark("<arg_value>") + " value" + at + " " + mark("</arg_value>") + " line");
    }
  }

  // Adds the rules of a value; see the top. A choice of choices goes only so deep, and there are only so many rules.
  void add_value(const std::string& name, const json::value& schema, const json::value& root, int depth = 0) {
    constexpr int kMostDepth = 4;
    constexpr size_t kMostRules = 10000, kMostBytes = size_t{4} << 20U;
    if (depth > kMostDepth || count_ > kMostRules) return refuse("a schema has too many choices within choices");
    if (rules_.size() > kMostBytes) return refuse("the schemas of the functions are too long");
    const JsonTypes types = types_in(schema, root);
    const json::value& found = resolved(schema, root);
    const std::string text =
        std::string("%text ") + (form_.format == CallFormat::kQwenCoder ? "</parameter>" : "</arg_value>") + " ";
    if ((types & kText) != 0 && says_types_alone(schema, root)) {
      add(name, text + R"({"type": "string"})");
    } else if (types == kText && found.is_object()) {
      add_text(name, text, found.get_object(), root, depth);
    } else {
      add(name, "%json " + json::serialize(with_definitions(schema, root)));
    }
  }

  // The schema is of texts alone. It may be a choice of such.
  void add_text(const std::string& name, const std::string& text, const json::object& schema, const json::value& root,
                int depth) {
    for (const char* key : {"anyOf", "oneOf"}) {
      const json::value* list = schema.if_contains(key);
      if (list == nullptr || !list->is_array() || !other_keyword(schema, {key}).empty()) continue;
      std::string choices;
      for (const json::value& one : list->get_array()) {
        const std::string choice = name + "_" + std::to_string(count_++);
        choices += (choices.empty() ? "" : " | ") + choice;
        add_value(choice, one, root, depth + 1);
      }
      add(name, choices);
      return;
    }
    json::object alone = schema;
    if (alone.contains("type")) alone["type"] = "string";
    add(name, text + json::serialize(alone));
  }

  // A value's schema comes to stand alone: what it refers to goes with it.
  static json::value with_definitions(const json::value& schema, const json::value& root) {
    if (!schema.is_object() || !root.is_object() || json::serialize(schema).find("\"$ref\"") == std::string::npos) {
      return schema;
    }
    json::object whole = schema.get_object();
    for (const char* key : {"$defs", "definitions"}) {
      const json::value* defined = root.get_object().if_contains(key);
      if (defined != nullptr && !whole.contains(key)) whole[key] = *defined;
    }
    return whole;
  }

  const CallForm& form_;
  bool several_;
  size_t count_ = 0;  // rules with a number of their own
  std::string rules_;
  ForcedCall forced_;
};

}  // namespace

ForcedCall force_by_rules(const CallForm& form, const json::array& tools, bool several) {
  return CallRules(form, several).made(tools);
}

}  // namespace tenon::serve
