// Normalizers, as tokenizer.json calls them, are steps from text to text, before it is split.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pattern.h"

namespace tenon::text {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

struct Lowercase {};
struct Prepend {
  std::string text;
};
struct Replace {
  Regex pattern;
  std::string content;
};
struct Strip {
  bool left;
  bool right;
};
using NormalizerStep = std::variant<UnicodeForm, Lowercase, Prepend, Replace, Strip>;

struct Normalized {
  std::string text;
  bool from_start;  // true: the original's first character is still there, in some form
};

// Takes the steps in order. Text and result are well-formed UTF-8.
Normalized normalize(const std::vector<NormalizerStep>& steps, std::string_view text, RegexScratch& scratch);

}  // namespace tenon::text
