// The lexer turns the source of a template into tokens, as Jinja with trim_blocks and lstrip_blocks reads it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "value.h"

namespace tenon::jinja {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kConstant,
  kSign,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t offset = 0;  // in the source
  std::string text;     // data; a name; a sign such as "=="
  Value value;          // a constant: a text or a number
};

// This says why a template cannot be read, and at which byte of the source.
class SyntaxFailure : public Failure {
 public:
  SyntaxFailure(uint32_t at, const std::string& message) : Failure(message), offset(at) {}
  uint32_t offset;
};

// Returns the source with every end of a line as "\n", and without the one at its end.
std::string normalized(std::string_view source);

// `source` is normalized. The last token is kEnd. Throws SyntaxFailure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace tenon::jinja
