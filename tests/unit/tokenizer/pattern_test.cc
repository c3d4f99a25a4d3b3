// Here are patterns and steps where libraries differ. The expected answers are those of Hugging Face's tokenizers
// (Oniguruma).
#include "pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json_reader.h"
#include "onig_pattern.h"
#include "tenon/core/error.h"
#include "tokenizer_json.h"
#include "utf8.h"

namespace tenon::text {
namespace {

using testing::ElementsAre;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  RegexScratch scratch;
  std::vector<Stretch> stretches;
  Regex(pattern).stretches(text, scratch, stretches);
  std::vector<std::string> found;
  for (const Stretch& s : stretches) {
    if (s.match) found.push_back(text.substr(s.begin, s.end - s.begin));
  }
  return found;
}

std::vector<std::string> pieces(const std::string& json, const std::string& text) {
  const std::string file = "steps";
  const boost::json::value value = parse_json(json, file);
  PieceScratch scratch;
  std::vector<std::string> found;
  for (const Piece& piece : parse_pre_tokenizer(JsonPlace(value, file)).run({text, true}, scratch)) {
    found.emplace_back(piece.text);
  }
  return found;
}

std::string normal(const std::string& json, const std::string& text) {
  const std::string file = "steps";
  const boost::json::value value = parse_json(json, file);
  RegexScratch scratch;
  return normalize(parse_normalizer(JsonPlace(value, file)), text, scratch).text;
}

TEST(Pattern, SpacesAreThoseOfUnicode) {
  EXPECT_THAT(matches(R"(\s)", "a\u180Eb\u0085c\u3000d\u200Be\x1C"), ElementsAre("\u0085", "\u3000"));
  EXPECT_THAT(matches(R"([^\S\n])", " \n\t\u180E"), ElementsAre(" ", "\t"));
  EXPECT_THAT(matches(R"(\S+)", "a\u180Eb c"), ElementsAre("a\u180Eb", "c"));
}

TEST(Pattern, WordsAreOnigurumas) {
  EXPECT_THAT(matches(R"(\w+)", "na\u00EFve_x \u00BD\u0967\u203F e\u0301 \u24B6"),
              ElementsAre("na\u00EFve_x", "\u0967\u203F", "e\u0301", "\u24B6"));
  EXPECT_THAT(matches(R"(\bx\b)", "x e\u0301x x_ x"), ElementsAre("x", "x"));
}

TEST(Pattern, DialectsAreTranslated) {
  EXPECT_THAT(matches(R"(\h+)", "xyzBEEF 0g"), ElementsAre("BEEF", "0"));
  EXPECT_THAT(matches(R"(a{,2}b)", "aaab b"), ElementsAre("aab", "b"));
  EXPECT_THAT(matches(R"(\u4e00)", "\u4E00"), ElementsAre("\u4E00"));
  EXPECT_THAT(matches(R"(^a|b$)", "a\nab\nb"), ElementsAre("a", "a", "b", "b"));
  EXPECT_THAT(matches(R"(a.b)", "a\nb a\rb"), ElementsAre("a\rb"));
  EXPECT_THAT(matches(R"((?m:a.b))", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(matches(R"((?i:'s|k))", "'S '\u017F \u212A"), ElementsAre("'S", "'\u017F", "\u212A"));
  EXPECT_THAT(matches(R"([[:alpha:]]+)", "ab1"), ElementsAre("ab"));
  EXPECT_THAT(matches(R"(\p{Letter}+)", "ab1"), ElementsAre("ab"));
}

TEST(Pattern, WhatCannotBeCarriedOverIsRefused) {
  for (const char* pattern : {"[a[b]]", "[a&&b]", R"(\y)", R"(\p{L}{1,3}+)", R"([\W])", "(?a:x)", "[a", "\\", R"(\pL)",
                              "(", "(?<n", R"(\p{Nonsense})", "[[:nonsense:]]", R"(\u12)"}) {
    EXPECT_THROW(Regex{pattern}, Error) << pattern;
  }
}

TEST(Pattern, EmptyMatchesSplitBetweenCharacters) {
  EXPECT_THAT(pieces(R"({"type":"Split","pattern":{"Regex":""},"behavior":"Isolated"})", "a\u4E00b"),
              ElementsAre("a", "\u4E00", "b"));
  EXPECT_THAT(matches("a*", "baac"), ElementsAre("", "aa", ""));
}

TEST(Pattern, GivesUpOnCatastrophicPatterns) {
  EXPECT_THROW(matches("(a|aa)+[bc]", std::string(3000, 'a')), Error);
}

TEST(Split, BehavesAsNamed) {
  const auto split = [](const std::string& behavior, bool invert = false) {
    return pieces(R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + behavior + R"(","invert":)" +
                      (invert ? "true}" : "false}"),
                  "the-final--countdown");
  };
  EXPECT_THAT(split("Removed"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(split("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(split("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(split("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(split("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(split("Removed", true), ElementsAre("-", "-", "-"));
}

TEST(PreTokenizers, CutAsPublished) {
  EXPECT_THAT(pieces(R"({"type":"Digits","individual_digits":false})", "a12\u00BDb3"),
              ElementsAre("a", "12\u00BD", "b", "3"));
  EXPECT_THAT(pieces(R"({"type":"Whitespace"})", "it's  a\u00E9_1!? x"),
              ElementsAre("it", "'", "s", "a\u00E9_1", "!?", "x"));
  EXPECT_THAT(pieces(R"({"type":"WhitespaceSplit"})", " a!  b\u3000c"), ElementsAre("a!", "b", "c"));
  EXPECT_THAT(pieces(R"({"type":"Punctuation"})", "a,b$\u3002"), ElementsAre("a", ",", "b", "$", "\u3002"));
  EXPECT_THAT(pieces(R"({"type":"Metaspace","prepend_scheme":"always"})", "Hey friend"),
              ElementsAre("\u2581Hey", "\u2581friend"));
  EXPECT_THAT(
      pieces(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":","},"behavior":"Isolated"},
                         {"type":"Metaspace","prepend_scheme":"first","split":false}]})",
             "a b,c"),
      ElementsAre("\u2581a\u2581b", ",", "c"));
}

TEST(PreTokenizers, ByteLevelBeforeOthersShowsThemItsAlphabet) {
  EXPECT_THAT(pieces(R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":true},
                         {"type":"Digits","individual_digits":true}]})",
                     "a\u03B2"),
              ElementsAre("\u0120a\u00CE", "\u00B2"));
}

TEST(Normalizers, ChangeTextAsPublished) {
  EXPECT_EQ(normal(R"({"type":"NFC"})", "e\u0301 \uAC00 \u1100\u1161 \u212B"), "\u00E9 \uAC00 \uAC00 \u00C5");
  EXPECT_EQ(normal(R"({"type":"NFD"})", "\u1EC7"), "e\u0323\u0302");
  EXPECT_EQ(normal(R"({"type":"NFKC"})", "\uFB01 \uFF21 \u00BD"), "fi A 1\u20442");
  EXPECT_EQ(normal(R"({"type":"NFKD"})", "\u00C5"), "A\u030A");
  EXPECT_EQ(normal(R"({"type":"Lowercase"})", "\u0130I\u03A3\u1E9E\u2126"), "i\u0307i\u03C3\u00DF\u03C9");
  EXPECT_EQ(normal(R"({"type":"Strip","strip_left":true,"strip_right":false})", " \u3000a "), "a ");
  EXPECT_EQ(normal(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"_"},
                       {"type":"Replace","pattern":{"String":"."},"content":"::"}]})",
                   "a.b"),
            "_a::b");
  EXPECT_EQ(normal(R"({"type":"Prepend","prepend":"_"})", ""), "");
}

TEST(Normalizers, OrderLongRunsOfMarks) {
  std::string mixed = "a";
  std::string below;
  std::string above;
  for (int i = 0; i < 50000; ++i) {
    mixed += "\u0301\u0323";
    below += "\u0323";
    above += "\u0301";
  }
  EXPECT_EQ(normal(R"({"type":"NFD"})", mixed + " e\u0302\u0323"), "a" + below + above + " e\u0323\u0302");
}

}  // namespace
}  // namespace tenon::text
