// These fields demand that a text is of a form: OpenAI's response_format, and those of vLLM.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fields.h"
#include "tenon/core/engine.h"

namespace tenon::serve {

struct StatedGrammar {
  GrammarText text;
  std::string field;  // it is stated there: "response_format.json_schema.schema"
};

// `problem`, if not empty, says why no request can have a grammar. Throws ApiError(400) that names the field.
std::optional<StatedGrammar> read_grammar_fields(Fields& fields, const std::string& problem);

// Returns a text as it stands in rules in GBNF, with its quotation marks.
std::string quoted_in_rules(std::string_view text);

// Returns rules that allow any of these texts and nothing else.
std::string grammar_of_choices(const std::vector<std::string>& choices);

}  // namespace tenon::serve
