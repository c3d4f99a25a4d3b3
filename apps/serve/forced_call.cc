// Each form of calls has what begins a call, which goes to the end of the prompt, and a grammar of the rest: a JSON Schema
// where the rest is an object, else rules (call_rules.h). The functions' schemas become parts of one, so references in
// them are moved.
#include "forced_call.h"

#include <utility>

#include "call_rules.h"

namespace tenon::serve {
namespace {

namespace json = boost::json;

// References within a schema begin at its root, which comes to lie at `place` of another one.
void move_references(json::value& schema, const std::string& place) {
  if (json::array* list = schema.if_array()) {
    for (json::value& one : *list) move_references(one, place);
  }
  json::object* object = schema.if_object();
  if (object == nullptr) return;
  for (auto& [name, value] : *object) {
    if (name == "const" || name == "enum" || name == "default" || name == "examples") continue;
    json::string* reference = name == "$ref" ? value.if_string() : nullptr;
    if (reference != nullptr && reference->starts_with('#')) {
      reference->insert(1, place);
    } else {
      move_references(value, place);
    }
  }
}

json::object schema_of_call(const json::object& function, const std::string& arguments_name, const std::string& place) {
  return {{"type", "object"},
          {"properties", {{"name", {{"const", function.at("name")}}}, {arguments_name, {{"$ref", "#" + place}}}}},
          {"required", {"name", arguments_name}},
          {"additionalProperties", false}};
}

}  // namespace

std::string final_begin(CallFormat format) {
  return format == CallFormat::kHarmony ? "<|channel|>final<|message|>" : "";
}

json::value schema_of_arguments(const json::object& function, const std::string& place) {
  const json::value* stated = function.if_contains("parameters");
  json::value schema = stated != nullptr && !stated->is_null() ? *stated : json::object{{"type", "object"}};
  if (!place.empty()) move_references(schema, place);
  return schema;
}

namespace {

// Calls in the forms of Hermes, Mistral and Llama are JSON as a whole.
ForcedCall force_by_schema(CallFormat format, const json::array& tools, bool several) {
  const bool list = format == CallFormat::kMistral;
  const std::string arguments_name = format == CallFormat::kLlama ? "parameters" : "arguments";
  json::object schema, arguments;
  json::array calls;
  for (const json::value& tool : tools) {
    const json::object& function = tool.at("function").get_object();
    const std::string name = "tool" + std::to_string(calls.size()), place = "/$defs/" + name;
    arguments[name] = schema_of_arguments(function, place);
    calls.push_back(schema_of_call(function, arguments_name, place));
  }
  if (list) {
    schema = {{"type", "array"}, {"items", {{"anyOf", std::move(calls)}}}, {"minItems", 1}};
    if (!several) schema["maxItems"] = 1;
  } else {
    schema["anyOf"] = std::move(calls);
  }
  schema["$defs"] = std::move(arguments);
  ForcedCall forced;
  if (format == CallFormat::kMistral) forced.begins = "[TOOL_CALLS]";
  if (format == CallFormat::kHermes) forced.begins = "<tool_call>\n";
  forced.grammar = {GrammarForm::kJsonSchema, json::serialize(schema), true};
  return forced;
}

// The prompt has the function's name already.
ForcedCall force_in_channel(const json::object& function) {
  const std::string name(function.at("name").get_string());
  ForcedCall forced;
  if (!is_plain_name(name)) forced.problem = "the function \"" + name + "\" has blanks, <, > or { in its name";
  forced.begins = "<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>";
  forced.grammar = {GrammarForm::kJsonSchema, json::serialize(schema_of_arguments(function, "")), true};
  return forced;
}

}  // namespace

ForcedCall force_call(const CallForm& form, const json::array& tools, bool several) {
  switch (form.format) {
    case CallFormat::kHermes:
    case CallFormat::kMistral:
    case CallFormat::kLlama:
      return force_by_schema(form.format, tools, several);
    case CallFormat::kHarmony:
      if (tools.size() == 1) return force_in_channel(tools.front().at("function").get_object());
      return force_by_rules(form, tools, several);
    default:
      return force_by_rules(form, tools, several);
  }
}

}  // namespace tenon::serve
