// A request may demand that its answer is a call of a tool. The prompt then ends with what begins a call in the model's
// form, and a grammar has the rest of the answer: the tool's name, and arguments as the tool describes them.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "tenon/core/engine.h"
#include "tool_calls.h"

namespace tenon::serve {

struct ForcedCall {
  std::string begins;   // the answer's text begins so, before the first token that the model chooses
  GrammarText grammar;  // the rest of the answer matches it
  std::string problem;  // why these tools cannot be forced in this form; "" = they can
};

// `tools` are those of the body, as they were checked; one of them is called. `several` lets the model call as often as
// it wants to, if the form has a list of calls. The format is not kNone.
ForcedCall force_call(const CallForm& form, const boost::json::array& tools, bool several);

// Returns how an answer begins that has to match a grammar and is no call: what a model of this format may write before
// its text is left out. "" for forms in which an answer is its text.
std::string final_begin(CallFormat format);

// Returns the schema of a tool's arguments, as it stands at `place`, a JSON pointer into another schema.
boost::json::value schema_of_arguments(const boost::json::object& function, const std::string& place);

}  // namespace tenon::serve
