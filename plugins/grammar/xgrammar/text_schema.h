// A JSON Schema of a text becomes rules that write the text as it is, without quotation marks and escapes.
#pragma once

#include <xgrammar/grammar.h>

#include <string>

namespace tenon::grammar_xgrammar {

// `schema` allows nothing but texts: {"type": "string"} with the keywords that schema.h takes, or texts in "const" or
// "enum". `end` comes after the text, and the text does not hold it; its first character is ASCII and comes once in
// it. A text of limited length does not even hold that character. What a pattern or a known format allows is taken as
// it is: a text of it may hold `end`. Throws sdk::Refused for what is wrong or not supported, with its place in the
// schema.
xgrammar::Grammar grammar_of_text(const std::string& schema, const std::string& end);

}  // namespace tenon::grammar_xgrammar
