// The two dialects read the same text differently in these places:
//   \s      PCRE2 counts U+180E as a space, Unicode and Oniguruma do not
//   \w \b   Oniguruma: Alphabetic, marks, decimal digits, connectors; PCRE2 10.42: letters, all numbers, underscore
//   \h \v   hexadecimal digit and vertical tab in Oniguruma, classes of blanks in PCRE2
//   \uHHHH  unknown to PCRE2
//   {,n}    a repetition in Oniguruma, plain text in PCRE2
//   {n,m}+  a repeated repetition in Oniguruma, possessive in PCRE2
//   (?m)    "dot matches newline" in Oniguruma, which always has multi-line anchors
//   [ && [  set operations in Oniguruma, plain text in PCRE2
#include "onig_pattern.h"

#include <array>
#include <cctype>

#include "tenon/core/error.h"
#include "utf8.h"

namespace tenon::text {
namespace {

struct Name {
  std::string_view from;
  std::string_view to;
};

constexpr std::array kCategories{
    Name{"letter", "L"},           Name{"mark", "M"},
    Name{"number", "N"},           Name{"punctuation", "P"},
    Name{"symbol", "S"},           Name{"other", "C"},
    Name{"separator", "Z"},        Name{"uppercaseletter", "Lu"},
    Name{"lowercaseletter", "Ll"}, Name{"digit", "Nd"},
    Name{"decimalnumber", "Nd"},   Name{"punct", "P"},
    Name{"alpha", "Alphabetic"},   Name{"upper", "Uppercase"},
    Name{"lower", "Lowercase"},    Name{"space", "White_Space"},
};

constexpr std::array kBrackets{
    Name{"alpha", R"(\p{Alphabetic})"},
    Name{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    Name{"digit", R"(\p{Nd})"},
    Name{"upper", R"(\p{Uppercase})"},
    Name{"lower", R"(\p{Lowercase})"},
    Name{"space", kSpaceSet},
    Name{"word", kWordSet},
    Name{"xdigit", "0-9A-Fa-f"},
    Name{"cntrl", R"(\p{Cc})"},
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    if (in_class_) refuse("a class without its \"]\"");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kModel, "regular expression \"" + std::string(pattern_) + "\": at byte " +
                                       std::to_string(at_) + ": " + what + " is not supported");
  }

  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (in_class_) return in_class(c);
    if (c == '[') return open_class();
    if (next_is("(?")) return group();
    if (c == '{') return repetition();
    copy(1);
  }

  void open_class() {
    in_class_ = true;
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) {
      out_ += "\\]";
      ++at_;
    }
  }

  void in_class(char c) {
    if (next_is("[:")) return bracket();
    if (c == '[') refuse("a class inside a class");
    if (next_is("&&")) refuse("an intersection of classes");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void bracket() {
    const size_t end = pattern_.find(":]", at_);
    for (const Name& name : kBrackets) {
      if (end != std::string_view::npos && pattern_.substr(at_ + 2, end - at_ - 2) == name.from) {
        out_ += name.to;
        at_ = end + 2;
        return;
      }
    }
    refuse("this bracket expression");
  }

  void group() {
    size_t end = at_ + 2;
    while (end < pattern_.size() && (std::isalpha(static_cast<unsigned char>(pattern_[end])) || pattern_[end] == '-')) {
      ++end;
    }
    const bool flags = end > at_ + 2 && end < pattern_.size() && (pattern_[end] == ':' || pattern_[end] == ')');
    if (!flags) return copy(2);
    out_ += "(?";
    for (at_ += 2; at_ < end; ++at_) {
      if (std::string_view("imx-").find(pattern_[at_]) == std::string_view::npos) refuse("this option");
      out_ += pattern_[at_] == 'm' ? 's' : pattern_[at_];
    }
  }

  void repetition() {
    size_t end = at_ + 1;
    while (end < pattern_.size() && (std::isdigit(static_cast<unsigned char>(pattern_[end])) || pattern_[end] == ',')) {
      ++end;
    }
    const bool counts = end > at_ + 1 && end < pattern_.size() && pattern_[end] == '}';
    if (!counts) return copy(1);
    if (end + 1 < pattern_.size() && pattern_[end + 1] == '+') refuse("a repetition of a repetition");
    out_ += '{';
    if (pattern_[at_ + 1] == ',') out_ += '0';
    ++at_;
    copy(end + 1 - at_);
  }

  // A class of characters, written as suits the place; `inside` is what a class in brackets would hold.
  void put_class(std::string_view inside, bool negated) {
    if (!in_class_) {
      out_.append(negated ? "[^" : "[").append(inside).append("]");
    } else if (!negated) {
      out_ += inside;
    } else {
      refuse("a negated class inside a class");
    }
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a \"\\\" at the end");
    const char c = pattern_[at_ + 1];
    if (c == 'p' || c == 'P') return property();
    at_ += 2;
    switch (c) {
      case 's':
        return put_class(kSpaceSet, false);
      case 'S':
        return in_class_ ? void(out_ += R"(\S\x{180e})") : put_class(kSpaceSet, true);
      case 'w':
        return put_class(kWordSet, false);
      case 'W':
        return put_class(kWordSet, true);
      case 'h':
        return put_class("0-9A-Fa-f", false);
      case 'H':
        return put_class("0-9A-Fa-f", true);
      case 'v':
        return void(out_ += R"(\x0b)");
      case 'u':
        return code_unit();
      case 'b':
        return void(out_ += in_class_ ? R"(\x08)" : word_border(true));
      case 'B':
        return void(out_ += word_border(false));
      default:
        break;
    }
    if (std::isalpha(static_cast<unsigned char>(c)) &&
        std::string_view("dDntrfaexAzZGKkRX").find(c) == std::string_view::npos) {
      at_ -= 2;
      refuse(std::string("\"\\") + c + "\"");
    }
    out_ += '\\';
    out_ += c;
  }

  static std::string word_border(bool border) {
    const std::string word = "[" + std::string(kWordSet) + "]";
    return border ? "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))"
                  : "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
  }

  void code_unit() {
    const std::string_view digits = pattern_.substr(at_, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      refuse("\"\\u\" without four hexadecimal digits");
    }
    out_.append("\\x{").append(digits).append("}");
    at_ += 4;
  }

  void property() {
    const size_t end = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || end == std::string_view::npos) {
      refuse("a property without \"{name}\"");
    }
    const bool negated = pattern_[at_ + 3] == '^';
    const std::string_view given = pattern_.substr(at_ + 3 + (negated ? 1 : 0), end - at_ - 3 - (negated ? 1 : 0));
    std::string plain;
    for (const char c : given) {
      if (c != '_' && c != ' ' && c != '-') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    std::string_view name = given;
    for (const Name& category : kCategories) {
      if (plain == category.from) name = category.to;
    }
    out_.append(pattern_.substr(at_, 3)).append(negated ? "^" : "").append(name).append("}");
    at_ = end + 1;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string onig_to_pcre2(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace tenon::text
