// Jinja's lexer is a table of regular expressions; here its rules are code. White space is taken away
// - before a tag with a minus, after one with a minus, and in comments and blocks, which are not shown in expressions:
// - between the start of a line and the tag (lstrip_blocks), unless the tag begins with a plus,
// - one end of a line after the tag (trim_blocks), unless it ends with a plus.
#include "lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "../tokenizer/utf8.h"

namespace tenon::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_name(char c) {
  return is_name_start(c) || is_digit(c);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      if (tag == std::string_view::npos) {
        add_data(at_, source_.size());
        break;
      }
      const char kind = source_[tag + 1];
      if (kind == '{') {
        read_variable(tag);
      } else if (kind == '#') {
        read_comment(tag);
      } else if (!read_raw(tag)) {
        read_block(tag);
      }
    }
    add(TokenKind::kEnd, source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& message) const {
    throw SyntaxFailure(static_cast<uint32_t>(at), message);
  }
  bool is_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  size_t next_tag() const {
    size_t tag = source_.find('{', at_);
    while (tag != std::string_view::npos &&
           (tag + 1 == source_.size() || std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos)) {
      tag = source_.find('{', tag + 1);
    }
    return tag;
  }

  Token& add(TokenKind kind, size_t at, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.offset = static_cast<uint32_t>(at);
    token.text = std::move(text);
    return tokens_.emplace_back(std::move(token));
  }
  void add_data(size_t begin, size_t end) {
    if (begin < end) add(TokenKind::kData, begin, std::string(source_.substr(begin, end - begin)));
  }

  // Adds the text before a tag, which has its sign at `sign`, without the white space that the tag takes away.
  void add_data_before(size_t tag, size_t sign, bool indented) {
    const std::string_view text = source_.substr(at_, tag - at_);
    const char c = sign < source_.size() ? source_[sign] : ' ';
    size_t end = tag;
    if (c == '-') {
      end = at_ + stripped(text, false, true).end;
    } else if (indented && c != '+') {
      const size_t line = text.rfind('\n') + 1;
      const bool starts_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      const Range blank = stripped(text.substr(line), true, false);
      if (starts_line && blank.begin == blank.end) end = at_ + line;
    }
    add_data(at_, end);
  }

  void skip_space() {
    const Range rest = stripped(source_.substr(at_), true, false);
    at_ += rest.begin;
  }

  // Goes past the end of a comment or block, whose sign comes before `end` if
  // there is one, and the white space after it.
  bool take_end(std::string_view end) {
    if (is_at("-" + std::string(end))) {
      at_ += 1 + end.size();
      skip_space();
      return true;
    }
    const bool plus = is_at("+" + std::string(end));
    if (!plus && !is_at(end)) return false;
    at_ += end.size() + (plus ? 1 : 0);
    if (!plus && at_ < source_.size() && source_[at_] == '\n') ++at_;
    return true;
  }

  void read_comment(size_t tag) {
    add_data_before(tag, tag + 2, true);
    at_ = tag + 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    while (!take_end("#}")) {
      if (++at_ >= source_.size()) fail(tag, "the comment does not end");
    }
  }

  // Returns what stands between {% and %} if that is the word; where it ends is then in `end`, before the sign.
  bool is_word_tag(size_t tag, std::string_view word, size_t& end) const {
    size_t at = tag + 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    at += stripped(source_.substr(at), true, false).begin;
    if (!source_.substr(at).starts_with(word)) return false;
    at += word.size();
    at += stripped(source_.substr(at), true, false).begin;
    end = at;
    const std::string_view rest = source_.substr(at);
    return rest.starts_with("%}") || rest.starts_with("-%}") || (word == "endraw" && rest.starts_with("+%}"));
  }

  bool read_raw(size_t tag) {
    size_t end = 0;
    if (!is_word_tag(tag, "raw", end)) return false;
    add_data_before(tag, tag + 2, true);
    at_ = end;
    const bool strips = source_[at_] == '-';
    at_ += strips ? 3 : 2;
    if (strips) skip_space();
    for (size_t last = source_.find("{%", at_); last != std::string_view::npos; last = source_.find("{%", last + 1)) {
      if (!is_word_tag(last, "endraw", end)) continue;
      add_data_before(last, last + 2, true);
      at_ = end;
      take_end("%}");
      return true;
    }
    fail(tag, "the raw block does not end");
  }

  void read_block(size_t tag) {
    add_data_before(tag, tag + 2, true);
    add(TokenKind::kBlockBegin, tag);
    at_ = tag + 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    while (true) {
      skip_space();
      const size_t end = at_;
      if (open_.empty() && take_end("%}")) {
        add(TokenKind::kBlockEnd, end);
        return;
      }
      read_token(tag, "the block does not end");
    }
  }

  void read_variable(size_t tag) {
    add_data_before(tag, tag + 2, false);
    add(TokenKind::kVariableBegin, tag);
    at_ = tag + 2;
    if (is_at("-")) ++at_;
    while (true) {
      skip_space();
      const bool strips = is_at("-}}");
      if (open_.empty() && (strips || is_at("}}"))) {
        add(TokenKind::kVariableEnd, at_);
        at_ += strips ? 3 : 2;
        if (strips) skip_space();
        return;
      }
      read_token(tag, "the expression does not end");
    }
  }

  void read_token(size_t tag, const char* unended) {
    if (at_ >= source_.size()) fail(tag, unended);
    const char c = source_[at_];
    if (is_digit(c)) {
      read_number();
    } else if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name(source_[end])) ++end;
      add(TokenKind::kName, at_, std::string(source_.substr(at_, end - at_)));
      at_ = end;
    } else if (c == '\'' || c == '"') {
      read_text();
    } else {
      read_sign();
    }
  }

  void read_sign() {
    static constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                  "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    const auto* sign = std::find_if(std::begin(kSigns), std::end(kSigns), [&](std::string_view s) { return is_at(s); });
    if (sign == std::end(kSigns)) {
      const size_t length = character_length(source_, at_);
      fail(at_, "found \"" + std::string(source_.substr(at_, length)) + "\", which begins nothing in an expression");
    }
    const char c = (*sign)[0];
    if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) fail(at_, std::string("unexpected \"") + c + "\"");
      if (open_.back() != c) fail(at_, std::string("unexpected \"") + c + "\", expected \"" + open_.back() + "\"");
      open_.pop_back();
    }
    add(TokenKind::kSign, at_, std::string(*sign));
    at_ += sign->size();
  }

  // Reads digits, with single underscores in between. Returns the end.
  size_t digits(size_t at) const {
    while (at < source_.size() &&
           (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }
  bool is_digit_at(size_t at) const { return at < source_.size() && is_digit(source_[at]); }

  void read_number() {
    size_t end = digits(at_);
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    bool real = false;
    if (!after_dot && end < source_.size() && source_[end] == '.' && is_digit_at(end + 1)) {
      end = digits(end + 1);
      real = true;
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (is_digit_at(end + 1 + sign)) {
        end = digits(end + 1 + sign);
        real = true;
      }
    }
    std::string number(source_.substr(at_, end - at_));
    std::erase(number, '_');
    const bool zeros = number.find_first_not_of('0') == std::string::npos;
    if (!real && ((number[0] == '0' && !zeros) || (end < source_.size() && is_name(source_[end])))) {
      fail(at_, "numbers are decimal, without zeros before them; found \"" + number +
                    source_[std::min(end, source_.size() - 1)] + "\"");
    }
    Token& token = add(TokenKind::kConstant, at_);
    int64_t integer = 0;
    double value = 0;
    const char* last = number.data() + number.size();
    const auto error =
        real ? std::from_chars(number.data(), last, value).ec : std::from_chars(number.data(), last, integer).ec;
    if (error != std::errc()) fail(at_, "the number " + number + " is beyond 64 bits");
    token.value = real ? Value(value) : Value(integer);
    at_ = end;
  }

  void read_text() {
    const size_t start = at_;
    const char quote = source_[at_++];
    std::string text;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\') {
        read_escape(text);
      } else {
        text += source_[at_++];
      }
    }
    if (at_ == source_.size()) fail(start, "the text does not end");
    ++at_;
    add(TokenKind::kConstant, start).value = Text(text, Origin::kTemplate);
  }

  // Reads one of Python's escapes; what is none of them stays as it is.
  void read_escape(std::string& text) {
    const size_t start = at_++;
    if (at_ == source_.size()) return;
    const char c = source_[at_++];
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const size_t named = kNames.find(c);
    if (named != std::string_view::npos) {
      text += kMeanings[named];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code_point(text, start, read_digits(start, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16));
    } else if (c >= '0' && c <= '7') {
      --at_;
      size_t count = 0;
      while (count < 3 && at_ + count < source_.size() && source_[at_ + count] >= '0' && source_[at_ + count] <= '7')
        ++count;
      append_code_point(text, start, read_digits(start, count, 8));
    } else if (c == 'N') {
      fail(start, "the escape \\N is not supported");
    } else if (c != '\n') {
      text += {'\\', c};
    }
  }

  char32_t read_digits(size_t start, size_t count, int base) {
    uint32_t code = 0;
    const std::string_view digits = source_.substr(at_, count);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (error != std::errc() || end != digits.data() + count) {
      fail(start, "the escape needs " + std::to_string(count) + " digits; found \"" + std::string(digits) + "\"");
    }
    at_ += count;
    return code;
  }

  void append_code_point(std::string& text, size_t start, char32_t code) const {
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) fail(start, "the escape means no character");
    text::append_utf8(text, code);
  }

  std::string_view source_;
  size_t at_ = 0;
  std::string open_;  // the brackets that have to close, the innermost last
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized(std::string_view source) {
  std::string result;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
    } else {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace tenon::jinja
