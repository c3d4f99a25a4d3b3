// These tests hide a number in made-up texts, and look for where the tokens of two texts part.
#include "haystack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tenon::app {
namespace {

using testing::HasSubstr;

// A token is a byte, and 256 begins a text if it is wanted.
class Bytes : public Tokenizer {
 public:
  explicit Bytes(bool bos) {
    info_.vocab_size = 257;
    info_.adds_bos = bos;
    if (bos) info_.bos = 256;
  }
  std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool add_special) const override {
    std::vector<int32_t> ids;
    if (add_special && info_.adds_bos) ids.push_back(256);
    for (const TextPart& part : parts) {
      for (const char c : part.text) ids.push_back(static_cast<unsigned char>(c));
    }
    return ids;
  }
  std::string_view bytes(int32_t) const override { return ""; }
  bool is_control(int32_t id) const override { return id == 256; }
  std::optional<int32_t> find(std::string_view) const override { return {}; }
};

std::string text_of(std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t id : tokens) text += id == 256 ? '^' : static_cast<char>(id);
  return text;
}

const std::string kSentence = "\nThe secret number is 12345. Remember it.\n",
                  kQuestion = "\nThe secret number is 12345";

TEST(Haystack, HidesTheNumberAtItsDepth) {
  const std::vector<int32_t> text = Bytes(false).encode("abcdefghijklmnopqrst");
  for (const bool bos : {false, true}) {
    const Bytes tokenizer(bos);
    const std::string begin = bos ? "^" : "";
    const auto length = static_cast<uint32_t>(begin.size() + 10 + kSentence.size() + kQuestion.size());
    const auto made = [&](double depth) { return haystack(tokenizer, text, {length, depth, "12345"}); };
    EXPECT_EQ(text_of(made(0).tokens), begin + kSentence + "abcdefghij" + kQuestion);
    EXPECT_EQ(text_of(made(0.35).tokens), begin + "abc" + kSentence + "defghij" + kQuestion);
    EXPECT_EQ(text_of(made(1).tokens), begin + "abcdefghij" + kSentence + kQuestion);
    EXPECT_EQ(made(1).continued, 6u);  // they are the blank and five digits
  }
}

TEST(Haystack, RefusesALengthThatCannotBeMade) {
  const Bytes tokenizer(false);
  const std::vector<int32_t> text = tokenizer.encode("abc");
  const auto refusal = [&](uint32_t length) -> std::string {
    try {
      haystack(tokenizer, text, {length, 0, "12345"});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const auto around = static_cast<uint32_t>(kSentence.size() + kQuestion.size());
  EXPECT_THAT(refusal(around),
              HasSubstr("leaves no room for text; number and question take " + std::to_string(around)));
  EXPECT_EQ(refusal(around + 3), "");
  EXPECT_THAT(refusal(around + 4), HasSubstr("takes 4 of the text, which has 3"));
}

TEST(Haystack, NumbersHaveFiveDigitsAndDiffer) {
  std::set<std::string> numbers;
  for (uint64_t i = 0; i < 100; ++i) {
    numbers.insert(hidden_number(i));
    EXPECT_EQ(hidden_number(i).size(), 5u);
    EXPECT_EQ(hidden_number(i), hidden_number(i));
  }
  EXPECT_GT(numbers.size(), 95u);
}

TEST(Continuation, BeginsWhereTheTokensPart) {
  const Bytes tokenizer(true);
  const Continuation made = continuation(tokenizer, "ab", " cd");
  EXPECT_EQ(text_of(made.tokens), "^ab cd");
  EXPECT_EQ(made.continued, 3u);
  EXPECT_THROW(continuation(tokenizer, "ab", ""), Error);
  EXPECT_THROW(continuation(Bytes(false), "", "ab"), Error);
}

}  // namespace
}  // namespace tenon::app
