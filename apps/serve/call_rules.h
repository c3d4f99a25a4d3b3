// Calls whose form is no JSON as a whole are forced by rules in GBNF, with the lines %json and %text of
// grammar.xgrammar for the arguments.
#pragma once

#include <boost/json.hpp>

#include "forced_call.h"

namespace tenon::serve {

// Returns what force_call() does. The format is kHarmony, kQwenCoder, kGlm, kDeepSeek3 or kDeepSeek31.
ForcedCall force_by_rules(const CallForm& form, const boost::json::array& tools, bool several);

}  // namespace tenon::serve
