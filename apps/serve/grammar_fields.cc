// A body may state one grammar at most, in any of these fields; a second one is refused. Choices become a grammar in
// EBNF and "json_object" a schema that every object matches; all others are handed to the engine as they were stated.
#include "grammar_fields.h"

namespace tenon::serve {
namespace {

namespace json = boost::json;

constexpr const char* kAnyObject = R"({"type": "object"})";

// This holds a body's only grammar.
class Stated {
 public:
  explicit Stated(const std::string& problem) : problem_(problem) {}

  void set(const Fields& fields, std::string_view field, GrammarForm form, std::string text, bool closed = true) {
    const std::string name = fields.name(field);
    if (!problem_.empty()) fields.fail(field, problem_, "unsupported_parameter");
    if (found_) fields.fail(field, found_->field + " is there already; a text has one form");
    found_ = StatedGrammar{};
    found_->text.form = form;
    found_->text.text = std::move(text);
    found_->text.closed = closed;
    found_->field = name;
  }
  std::optional<StatedGrammar> take() { return std::move(found_); }

 private:
  const std::string& problem_;
  std::optional<StatedGrammar> found_;
};

// A schema is an object, true, or the text of one.
void read_schema(Fields& fields, std::string_view field, Stated& stated, bool closed = true) {
  const json::value* value = fields.find(field);
  if (value == nullptr) return;
  if (!value->is_object() && !value->is_bool() && !value->is_string()) fields.fail(field, "it is not a JSON Schema");
  stated.set(fields, field, GrammarForm::kJsonSchema,
             value->is_string() ? std::string(value->get_string()) : json::serialize(*value), closed);
}

void read_text(Fields& fields, std::string_view field, GrammarForm form, Stated& stated) {
  if (auto text = fields.text(field)) stated.set(fields, field, form, std::move(*text));
}

void read_choices(Fields& fields, std::string_view field, Stated& stated) {
  const json::value* value = fields.find(field);
  if (value == nullptr) return;
  const json::array* list = value->if_array();
  if (list == nullptr || list->empty()) fields.fail(field, "it is not a list of texts");
  std::vector<std::string> choices;
  for (const json::value& one : *list) {
    if (!one.is_string()) fields.fail(field, "it is not a list of texts");
    choices.emplace_back(one.get_string());
  }
  stated.set(fields, field, GrammarForm::kEbnf, grammar_of_choices(choices));
}

void read_object(const Fields& fields, std::string_view field, Stated& stated) {
  stated.set(fields, field, GrammarForm::kJsonSchema, kAnyObject, false);
}

void read_json_schema(Fields& format, Stated& stated) {
  const json::value* value = format.find("json_schema");
  if (value == nullptr) format.fail("json_schema", "it is missing");
  if (!value->is_object()) format.fail("json_schema", "it is not an object");
  Fields fields(value->get_object(), format.name("json_schema") + ".");
  if (!fields.text("name")) fields.fail("name", "it is missing");
  fields.accept({"description"});
  const bool closed = fields.boolean("strict").value_or(true);
  if (fields.find("schema") == nullptr) fields.fail("schema", "it is missing");
  read_schema(fields, "schema", stated, closed);
  fields.finish();
}

void read_response_format(Fields& fields, Stated& stated) {
  const json::value* value = fields.find("response_format");
  if (value == nullptr) return;
  if (!value->is_object()) fields.fail("response_format", "it is not an object");
  Fields format(value->get_object(), "response_format.");
  format.only("type", {"text", "json_object", "json_schema"});
  const std::string type = format.text("type").value_or("text");
  if (type == "json_object") read_object(format, "type", stated);
  if (type == "json_schema") read_json_schema(format, stated);
  format.finish();
}

void read_structured_outputs(Fields& fields, Stated& stated) {
  const json::value* value = fields.find("structured_outputs");
  if (value == nullptr) return;
  if (!value->is_object()) fields.fail("structured_outputs", "it is not an object");
  Fields own(value->get_object(), "structured_outputs.");
  read_schema(own, "json", stated);
  read_text(own, "regex", GrammarForm::kRegex, stated);
  read_text(own, "grammar", GrammarForm::kEbnf, stated);
  read_choices(own, "choice", stated);
  if (own.boolean("json_object").value_or(false)) read_object(own, "json_object", stated);
  own.accept({"disable_fallback"});  // nothing falls back
  own.finish();
}

}  // namespace

std::string quoted_in_rules(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ') {
      quoted += std::string("\\x") + kDigits[byte >> 4U] + kDigits[byte & 15U];
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string grammar_of_choices(const std::vector<std::string>& choices) {
  std::string rules = "root ::=";
  for (const std::string& choice : choices) {
    rules += (rules.ends_with('=') ? " " : " | ") + quoted_in_rules(choice);
  }
  return rules + "\n";
}

std::optional<StatedGrammar> read_grammar_fields(Fields& fields, const std::string& problem) {
  Stated stated(problem);
  read_response_format(fields, stated);
  read_schema(fields, "guided_json", stated);
  read_text(fields, "guided_regex", GrammarForm::kRegex, stated);
  read_text(fields, "guided_grammar", GrammarForm::kEbnf, stated);
  read_choices(fields, "guided_choice", stated);
  read_structured_outputs(fields, stated);
  return stated.take();
}

}  // namespace tenon::serve
