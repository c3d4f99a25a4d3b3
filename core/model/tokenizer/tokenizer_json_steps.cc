// This reads the sections "normalizer" and "pre_tokenizer" of tokenizer.json into steps that the tokenizer
// runs in their order. The file's form and the meaning of each type are those of Hugging Face's
// tokenizers. A type or a value that is not known is an error at its place in the file: nothing is
// skipped, since a skipped step would give other tokens.
#include <algorithm>

#include "onig_pattern.h"
#include "pre_tokenizer_table.h"
#include "tokenizer_json.h"
#include "utf8.h"

namespace tenon::text {
namespace {

// These are words of Unicode's regular expressions, as the pre-tokenizer "Whitespace" means them.
std::string word_pattern() {
  const std::string word = std::string(kWordSet) + R"(\x{200C}\x{200D})";
  return "[" + word + "]+|[^" + word + std::string(kSpaceSet) + "]+";
}

constexpr std::string_view kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";

Regex parse_pattern(const JsonPlace& place) {
  if (const JsonPlace text = place["String"]; !text.empty()) return Regex::literal(text.string());
  const JsonPlace regex = place["Regex"];
  if (regex.empty()) place.expected(R"({"String": ...} or {"Regex": ...})");
  try {
    return Regex(regex.string());
  } catch (const std::exception& error) {
    regex.fail(error.what());
  }
}

SplitBehavior parse_behavior(const JsonPlace& place, std::string_view otherwise) {
  const std::string name = place.string_or(otherwise);
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  place.expected("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void parse_metaspace(const JsonPlace& place, std::vector<PreTokenizerStep>& steps) {
  const std::string replacement = metaspace_character(place);
  const JsonPlace scheme_place = place["prepend_scheme"];
  if (scheme_place.is_null()) scheme_place.expected("always, first or never");
  const std::string scheme = scheme_place.string_or(place["add_prefix_space"].boolean_or(true) ? "always" : "never");
  SpaceMap::Prepend prepend;
  if (scheme == "always") {
    prepend = SpaceMap::Prepend::kAlways;
  } else if (scheme == "first") {
    prepend = SpaceMap::Prepend::kFirst;
  } else if (scheme == "never") {
    prepend = SpaceMap::Prepend::kNever;
  } else {
    scheme_place.expected("always, first or never");
  }
  steps.push_back(SpaceMap{replacement, prepend});
  if (place["split"].boolean_or(true)) {
    steps.push_back(SplitStep{Regex::literal(replacement), SplitBehavior::kMergedWithNext, false});
  }
}

void add_pre_tokenizer(const JsonPlace& place, std::vector<PreTokenizerStep>& steps) {
  const std::string_view type = place["type"].string();
  if (type == "Sequence") {
    for (const JsonPlace& step : place["pretokenizers"].required_elements()) add_pre_tokenizer(step, steps);
  } else if (type == "Split") {
    steps.push_back(SplitStep{parse_pattern(place["pattern"]), parse_behavior(place["behavior"], ""),
                              place["invert"].boolean_or(false)});
  } else if (type == "ByteLevel") {
    if (place["add_prefix_space"].boolean_or(false)) steps.push_back(PrefixSpace{});
    if (place["use_regex"].boolean_or(true)) {
      steps.push_back(SplitStep{Regex(kGpt2Pattern), SplitBehavior::kIsolated, false});
    }
    steps.push_back(ByteMap{});
  } else if (type == "Digits") {
    const bool individual = place["individual_digits"].boolean_or(false);
    steps.push_back(
        SplitStep{Regex::pcre2(R"(\p{N})"), individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
  } else if (type == "Metaspace") {
    parse_metaspace(place, steps);
  } else if (type == "Whitespace") {
    steps.push_back(SplitStep{Regex::pcre2(word_pattern()), SplitBehavior::kRemoved, true});
  } else if (type == "WhitespaceSplit") {
    steps.push_back(SplitStep{Regex(R"(\s)"), SplitBehavior::kRemoved, false});
  } else if (type == "Punctuation") {
    steps.push_back(SplitStep{Regex::pcre2(kPunctuation), parse_behavior(place["behavior"], "Isolated"), false});
  } else {
    place.fail(
        "unknown pre-tokenizer \"" + std::string(type) +
        "\"; supported: Sequence, Split, ByteLevel, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation");
  }
}

void add_normalizer(const JsonPlace& place, std::vector<NormalizerStep>& steps) {
  const std::string_view type = place["type"].string();
  if (type == "Sequence") {
    for (const JsonPlace& step : place["normalizers"].required_elements()) add_normalizer(step, steps);
  } else if (type == "NFC") {
    steps.push_back(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    steps.push_back(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    steps.push_back(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    steps.push_back(UnicodeForm::kNfkd);
  } else if (type == "Lowercase") {
    steps.emplace_back(std::in_place_type<Lowercase>);
  } else if (type == "Prepend") {
    steps.push_back(Prepend{std::string(place["prepend"].string())});
  } else if (type == "Replace") {
    steps.push_back(Replace{parse_pattern(place["pattern"]), std::string(place["content"].string())});
  } else if (type == "Strip") {
    steps.push_back(Strip{place["strip_left"].boolean_or(true), place["strip_right"].boolean_or(true)});
  } else {
    place.fail("unknown normalizer \"" + std::string(type) +
               "\"; supported: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip");
  }
}

}  // namespace

std::string metaspace_character(const JsonPlace& metaspace) {
  const JsonPlace place = metaspace["replacement"];
  std::string character = place.string_or(kMetaspace);
  const auto starts_character = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  if (place.is_null() || std::count_if(character.begin(), character.end(), starts_character) != 1) {
    place.expected("one character");
  }
  return character;
}

std::vector<NormalizerStep> parse_normalizer(const JsonPlace& place) {
  std::vector<NormalizerStep> steps;
  if (!place.empty()) add_normalizer(place, steps);
  return steps;
}

PreTokenizer parse_pre_tokenizer(const JsonPlace& place) {
  std::vector<PreTokenizerStep> steps;
  if (!place.empty()) add_pre_tokenizer(place, steps);
  return PreTokenizer(std::move(steps));
}

}  // namespace tenon::text
