#include "forced_call.h"

#include <utility>

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

// Returns the schema of a tool's arguments, as it stands at `place`, a JSON pointer.
json::value schema_of_arguments(const json::object& function, const std::string& place) {
  const json::value* stated = function.if_contains("parameters");
  json::value schema = stated != nullptr && !stated->is_null() ? *stated : json::object{{"type", "object"}};
  move_references(schema, place);
  return schema;
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

ForcedCall force_call(CallFormat format, const json::array& tools, bool several) {
  ForcedCall forced;
  forced.grammar.form = GrammarForm::kJsonSchema;
  forced.grammar.closed = true;
  if (format == CallFormat::kHarmony) {
    const json::object& function = tools.front().at("function").get_object();
    forced.begins = "<|channel|>commentary to=functions." + std::string(function.at("name").get_string()) +
                    " <|constrain|>json<|message|>";
    forced.grammar.text = json::serialize(schema_of_arguments(function, ""));
    return forced;
  }
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
  forced.begins = call_begin(format);
  forced.grammar.text = json::serialize(schema);
  return forced;
}

}  // namespace tenon::serve
