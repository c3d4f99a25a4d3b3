// Configuration and loading throw tenon::Error; steps return Status. Nothing in core prints or exits.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

// This says what kind of thing went wrong. The programs map it to their exit code (see `tenon --help`).
enum class ErrorCode {
  kUsage,     // the command line
  kConfig,    // a pipeline file or an override
  kPlugin,    // a plugin library is missing, stale, broken or refused
  kModel,     // weights, tokenizer or architecture
  kMemory,    // the plan does not fit, or an allocation failed
  kIo,        // a file cannot be read or written
  kRequest,   // one request has too long a prompt or a bad parameter
  kNumbers,   // what a model computes is not finite
  kInternal,  // somebody made a programming mistake, or the system starts no thread
};

// This says where in a text file something was found. Lines and columns count from 1; 0 = unknown.
struct SourcePosition {
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
};

// This is one finding, printed as "file:line:column: error: message".
struct Diagnostic {
  SourcePosition where;
  std::string message;
};

// Everything that configures or loads throws this. what() holds all diagnostics, one a line.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string message);
  Error(ErrorCode code, SourcePosition where, std::string message);
  Error(ErrorCode code, std::vector<Diagnostic> diagnostics);

  ErrorCode code() const noexcept { return code_; }
  const std::vector<Diagnostic>& diagnostics() const noexcept { return diagnostics_; }

 private:
  ErrorCode code_;
  std::vector<Diagnostic> diagnostics_;
};

// Returns "file:line:column: error: message" without what is unknown.
std::string to_string(const Diagnostic& diagnostic);

// A step returns this, so that no exception crosses the hot path.
class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status error(ErrorCode code, std::string message) { return Status(code, std::move(message)); }

  bool ok() const noexcept { return message_.empty(); }
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

 private:
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code_ = ErrorCode::kInternal;
  std::string message_;  // empty = ok
};

// Returns the entry of `known` nearest to `word` by edit distance, or "" if none is near enough to be what was meant.
std::string nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace tenon
