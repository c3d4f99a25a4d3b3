// This gives the tokens of a template, one after the other.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lexer.h"

namespace tenon::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(TokenKind::kSign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(TokenKind::kName) && current().text == name; }
  bool is_one_of(std::initializer_list<std::string_view> names) const {
    return is(TokenKind::kName) && std::find(names.begin(), names.end(), current().text) != names.end();
  }

  bool skip_sign(std::string_view sign) { return is_sign(sign) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }
  const Token& expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail_expected(what);
    return next();
  }
  const Token& expect_sign(std::string_view sign) {
    if (!is_sign(sign)) fail_expected("\"" + std::string(sign) + "\"");
    return next();
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_expected("\"" + std::string(name) + "\"");
  }

  [[noreturn]] void fail_expected(std::string_view what) const {
    throw SyntaxFailure(current().offset, "expected " + std::string(what) + ", found " + shown(current()));
  }

 private:
  static std::string shown(const Token& token) {
    switch (token.kind) {
      case TokenKind::kName:
      case TokenKind::kSign:
        return "\"" + token.text + "\"";
      case TokenKind::kConstant:
        return token.value.as_text() != nullptr ? "a text" : "a number";
      case TokenKind::kData:
        return "text";
      case TokenKind::kBlockBegin:
        return "\"{%\"";
      case TokenKind::kBlockEnd:
        return "\"%}\"";
      case TokenKind::kVariableBegin:
        return "\"{{\"";
      case TokenKind::kVariableEnd:
        return "\"}}\"";
      case TokenKind::kEnd:
        break;
    }
    return "the end of the template";
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace tenon::jinja
