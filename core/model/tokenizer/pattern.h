// Regular expressions of tokenizers run on PCRE2, as machine code where it has that. Every text is well-formed UTF-8.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

// Matching needs this working memory; each thread has its own.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

// This is one stretch of a text: a match, or what lies between two.
struct Stretch {
  size_t begin;
  size_t end;
  bool match;
};

// A pattern never changes, and threads may share it.
class Regex {
 public:
  // Compiles `pattern` in Oniguruma's dialect. Throws Error(kModel) with the pattern and the place.
  explicit Regex(std::string_view pattern);
  // Matches `text` itself.
  static Regex literal(std::string_view text);
  // Compiles `pattern` in PCRE2's dialect.
  static Regex pcre2(std::string_view pattern);

  // Appends to `out` the whole of `text` as stretches in order. Matches are the successive leftmost ones; an empty
  // match directly after a match is none. Throws Error(kRequest) if matching runs past its limits.
  void stretches(std::string_view text, RegexScratch& scratch, std::vector<Stretch>& out) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace tenon::text
