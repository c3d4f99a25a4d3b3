// XGrammar's messages are read while it works: a warning tells that it leaves something
// of a grammar out, which is refused here.
#pragma once

#include <stdexcept>
#include <string>

namespace tenon::grammar_xgrammar {

// XGrammar throws this for a grammar that is wrong.
struct Complaint : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Forgets what was said on this thread, and returns the first warning since then, or "".
void forget_warnings();
const std::string& first_warning();

}  // namespace tenon::grammar_xgrammar
