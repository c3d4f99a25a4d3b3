#include "grammar_args.h"

#include "text_input.h"

namespace tenon::app {
namespace {

constexpr uint64_t kGrammarBytes = uint64_t{1} << 20U;

}  // namespace

void GrammarArgs::add_to(CLI::App& app) {
  auto* schema = app.add_option("--json-schema", schema_file, "The text is JSON that this file's JSON Schema allows");
  auto* expression = app.add_option("--regex", regex, "The text matches this regular expression, all of it");
  auto* rules = app.add_option("--grammar", grammar_file, "The text matches the rules (GBNF) in this file");
  schema->excludes(expression)->excludes(rules);
  expression->excludes(rules);
}

std::optional<GrammarText> GrammarArgs::text() const {
  GrammarText grammar;
  if (!schema_file.empty()) {
    grammar.text = text_of_file(schema_file, kGrammarBytes);
  } else if (regex) {
    grammar.form = GrammarForm::kRegex;
    grammar.text = *regex;
  } else if (!grammar_file.empty()) {
    grammar.form = GrammarForm::kEbnf;
    grammar.text = text_of_file(grammar_file, kGrammarBytes);
  } else {
    return std::nullopt;
  }
  return grammar;
}

std::vector<std::pair<const char*, std::string>> GrammarArgs::words() const {
  std::vector<std::pair<const char*, std::string>> all;
  if (!schema_file.empty()) all.emplace_back("--json-schema", schema_file);
  if (regex) all.emplace_back("--regex", *regex);
  if (!grammar_file.empty()) all.emplace_back("--grammar", grammar_file);
  return all;
}

}  // namespace tenon::app
