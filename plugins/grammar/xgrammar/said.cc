#include "said.h"

#include "support/logging.h"

namespace tenon::grammar_xgrammar {
namespace {

thread_local std::string warning;

// "Check failed: (condition) is false: message" becomes the message.
std::string without_condition(const std::string& message) {
  constexpr const char* kBorder = ") is false: ";
  const size_t at = message.starts_with("Check failed: (") ? message.find(kBorder) : std::string::npos;
  return at == std::string::npos ? message : message.substr(at + std::string(kBorder).size());
}

}  // namespace

void forget_warnings() {
  warning.clear();
}
const std::string& first_warning() {
  return warning;
}

}  // namespace tenon::grammar_xgrammar

namespace xgrammar {

void LogFatalImpl(const std::string& /*file*/, int /*lineno*/, const std::string& message) {
  throw tenon::grammar_xgrammar::Complaint(tenon::grammar_xgrammar::without_condition(message));
}

// Is called by a destructor, which no exception may leave.
void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int level, const std::string& message) {
  if (level < XGRAMMAR_LOG_LEVEL_WARNING || !tenon::grammar_xgrammar::warning.empty()) return;
  try {
    tenon::grammar_xgrammar::warning = message;
  } catch (const std::bad_alloc&) {
    tenon::grammar_xgrammar::warning = "?";  // this is short enough for no allocation
  }
}

}  // namespace xgrammar
