// These are the rules of a GBNF file, some of which a JSON Schema may write.
#pragma once

#include <xgrammar/grammar.h>

#include <string>

namespace tenon::grammar_xgrammar {

// Beside what XGrammar reads, a rule may stand on a line of its own as
//   name ::= %json SCHEMA      JSON that the schema allows; any_whitespace and closed are as in schema.h
//   name ::= %text END SCHEMA  a text that the schema allows and that does not hold END, as in text_schema.h
// where END has no blanks and SCHEMA is the rest of the line. Throws sdk::Refused, or what XGrammar throws, for what is
// wrong.
xgrammar::Grammar grammar_of_rules(const std::string& rules, bool any_whitespace, bool closed);

}  // namespace tenon::grammar_xgrammar
