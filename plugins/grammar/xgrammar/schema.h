// A JSON Schema (draft 2020-12) becomes rules that generate nothing but JSON that it allows.
#pragma once

#include <xgrammar/grammar.h>

#include <string>

#include "support/json_parse.h"

namespace tenon::grammar_xgrammar {

// With any_whitespace there is any between the parts of the JSON; else there are ", " and ": ". If `closed`, objects
// have no properties, and arrays no items, that the schema does not describe. Throws sdk::Refused for what is wrong or
// not supported, with its place in the schema ("#/properties/a").
xgrammar::Grammar grammar_of_schema(const std::string& schema, bool any_whitespace, bool closed);

// Returns the schema, all of whose keywords XGrammar heeds. Throws as grammar_of_schema() does.
picojson::value checked_schema(const std::string& schema, bool closed);

}  // namespace tenon::grammar_xgrammar
