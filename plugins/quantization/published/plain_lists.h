// config.json lists the matrices that stay plain, each form under a name of its own ("modules_to_not_convert",
// "ignore"). A matrix that is listed and has codes all the same is a contradiction: a program that keeps to the list would
// take the codes for weights. One that is plain and in no list is none, since the tensors say how it is to be read.
#pragma once

#include <initializer_list>
#include <regex>
#include <string>
#include <vector>

#include "description.h"
#include "matrix.h"

namespace tenon::published {

namespace detail {

// Resolves the escapes that JSON has in a text; what is written by numbers stays.
inline std::string without_escapes(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size() && text[i + 1] != 'u';
    plain += text[escape ? ++i : i];
  }
  return plain;
}

// Says whether a name in a list means a matrix: its whole name, the first or last parts of it between dots, or, after
// "re:", a regular expression that fits its beginning. Other programs' lists may mean more.
class ListedName {
 public:
  explicit ListedName(const std::string& name) : name_(without_escapes(name)) {
    if (!name_.starts_with("re:")) return;
    try {
      if (name_.size() <= kLongest) expression_.assign(name_.substr(3), kSyntax);
      is_expression_ = name_.size() <= kLongest;
    } catch (const std::regex_error&) {  // another program's form of expressions
    }
    if (!is_expression_) name_.clear();  // it means no matrix here
  }
  bool means(const std::string& matrix) const {
    if (is_expression_) return std::regex_search(matrix, expression_, std::regex_constants::match_continuous);
    return !name_.empty() && (matrix == name_ || matrix.ends_with("." + name_) || matrix.starts_with(name_ + "."));
  }

 private:
  // A file's expression may ask for anything: the standard library's stack grows with its length, and its time with the
  // length of a name alone if it remembers no choices, which GNU's has to be told.
  static constexpr size_t kLongest = 512;
#ifdef __GLIBCXX__
  static constexpr auto kSyntax = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
  static constexpr auto kSyntax = std::regex::ECMAScript;
#endif

  std::string name_;
  std::regex expression_;
  bool is_expression_ = false;
};

}  // namespace detail

// The file has codes of matrix `mat` of a site, and of every expert's. Throws sdk::Refused, with the list and the
// matrix, if a list of config.json says that one of them stays plain.
inline void need_unlisted(const tenon_linear& s, uint32_t mat) {
  const Description d(s.description);
  for (const char* list :
       {"ignore", "ignored_layers", "llm_int8_skip_modules", "modules_to_not_convert", "skip_modules"}) {
    if (!d.has(list) || !d.list(list)) continue;
    for (size_t i = 0; d.has(std::string(list) + "." + std::to_string(i)); ++i) {
      const std::string key = std::string(list) + "." + std::to_string(i);
      const detail::ListedName name(d.text(key));
      for (const std::string& matrix : names_of(s, mat)) {
        if (!name.means(matrix)) continue;
        d.wrong(key, "no name that means matrix \"" + matrix +
                         "\": such a matrix stays plain, and the file has codes of it");
      }
    }
  }
}

}  // namespace tenon::published
