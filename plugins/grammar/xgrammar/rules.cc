// The lines with a schema are taken out of the rules, and a rule of no text stands there until XGrammar has read the
// others. Then each gets the rules of its schema, whose names XGrammar makes different from those that are there.
#include "rules.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>
#include <vector>

#include "grammar_builder.h"
#include "grammar_functor.h"
#include "grammar_parser.h"
#include "schema.h"
#include "tenon/sdk/error.h"
#include "text_schema.h"

namespace tenon::grammar_xgrammar {
namespace {

constexpr std::string_view kBlanks = " \t\r";

// Takes the first word off a line, and returns it.
std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

struct SchemaRule {
  std::string name, end, schema;
  bool text = false;  // true: %text, false: %json
};

// Takes the lines with a schema out of the rules.
std::vector<SchemaRule> take_schemas(std::string& rules) {
  std::vector<SchemaRule> found;
  std::string out;
  for (size_t begin = 0; begin < rules.size();) {
    const size_t end = std::min(rules.find('\n', begin), rules.size());
    const std::string_view line = std::string_view(rules).substr(begin, end - begin);
    std::string_view rest = line;
    const std::string_view name = take_word(rest), defines = take_word(rest), form = take_word(rest);
    if (defines == "::=" && (form == "%json" || form == "%text")) {
      SchemaRule rule{.name = std::string(name), .end = {}, .schema = {}, .text = form == "%text"};
      if (rule.text) rule.end = take_word(rest);
      rule.schema = rest;
      out += rule.name + " ::= \"\"";
      found.push_back(std::move(rule));
    } else {
      out += line;
    }
    out += '\n';
    begin = end + 1;
  }
  rules = std::move(out);
  return found;
}

}  // namespace

xgrammar::Grammar grammar_of_rules(const std::string& rules, bool any_whitespace, bool closed) {
  std::string others = rules;
  const std::vector<SchemaRule> schemas = take_schemas(others);
  if (schemas.empty()) return xgrammar::Grammar::FromEBNF(rules);
  xgrammar::GrammarBuilder builder(xgrammar::ParseEBNF(others, "root"));
  for (const SchemaRule& rule : schemas) {
    try {
      const xgrammar::Grammar grammar =
          rule.text ? grammar_of_text(rule.schema, rule.end) : grammar_of_schema(rule.schema, any_whitespace, closed);
      const int32_t root = xgrammar::SubGrammarAdder::Apply(&builder, grammar);
      const int32_t body = builder.AddChoices({builder.AddSequence({builder.AddRuleRef(root)})});
      builder.UpdateRuleBody(builder.GetRuleId(rule.name), body);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      throw sdk::Refused("the schema of the rule " + rule.name + ": " + e.what());
    }
  }
  return xgrammar::GrammarNormalizer::Apply(builder.Get("root"));
}

}  // namespace tenon::grammar_xgrammar
