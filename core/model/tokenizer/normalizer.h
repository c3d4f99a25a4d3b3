// What tokenizer.json calls normalizers: steps from text to text, before it is split.
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

// The steps in order. Text and result are well-formed UTF-8.
std::string normalize(const std::vector<NormalizerStep>& steps, std::string_view text, RegexScratch& scratch);

}  // namespace tenon::text
