// These tests turn tokens into text piece by piece, where characters are cut between tokens.
#include <gtest/gtest.h>

#include "support.h"

namespace tenon {
namespace {

using test::data_path;

TEST(StreamDetokenizer, NeverSplitsACharacter) {
  const auto tokenizer = make_tokenizer(data_path("gpt2"));
  const std::string text = "x \U0001F468\u200D\U0001F469\u200D\U0001F467 \u4F60\u597D \u0645\u0631 e\u0301";
  StreamDetokenizer stream(*tokenizer);
  std::string all;
  for (const int32_t id : tokenizer->encode(text)) {
    const std::string part = stream.push(id);
    // A continuation byte first or a lead byte last would be half a character.
    if (!part.empty()) {
      EXPECT_NE(static_cast<uint8_t>(part.front()) & 0xC0, 0x80);
      EXPECT_LT(static_cast<uint8_t>(part.back()), 0xC0);
    }
    all += part;
  }
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(all, text);
}

TEST(StreamDetokenizer, ReplacesWhatNeverBecomesACharacter) {
  const auto tokenizer = make_tokenizer(data_path("llama2"));
  const auto byte = [](uint8_t value) { return value + 3; };
  StreamDetokenizer stream(*tokenizer);
  EXPECT_EQ(stream.push(byte(0xE2)), "");
  EXPECT_EQ(stream.push(byte(0x82)), "");
  EXPECT_EQ(stream.push(byte(0xAC)), "\u20AC");
  EXPECT_EQ(stream.push(byte(0xE2)), "");
  EXPECT_EQ(stream.push(byte('A')), "\uFFFDA");
  EXPECT_EQ(stream.push(byte(0x80)), "\uFFFD");
  EXPECT_EQ(stream.push(byte(0xF0)), "");
  EXPECT_EQ(stream.push(byte(0x9F)), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push(byte('b')), "b");
}

TEST(StreamDetokenizer, LeavesOutControlTokensUnlessAsked) {
  const auto tokenizer = make_tokenizer(data_path("llama2"));
  const std::vector<int32_t> ids = tokenizer->encode("Hello");
  EXPECT_EQ(decode(*tokenizer, ids), "Hello");
  EXPECT_EQ(decode(*tokenizer, ids, {.show_control = true}), "<s> Hello</s>");
  EXPECT_TRUE(tokenizer->is_control(1));
  EXPECT_FALSE(tokenizer->is_control(5));
}

TEST(StreamDetokenizer, KeepsTheFirstSpaceOfAContinuation) {
  const auto tokenizer = make_tokenizer(data_path("llama2"));
  const std::vector<int32_t> ids = tokenizer->encode("Hello", {.add_special = false});
  EXPECT_EQ(decode(*tokenizer, ids, {.continues = true}), " Hello");
}

TEST(StreamDetokenizer, IgnoresIdsBeyondTheVocabulary) {
  const auto tokenizer = make_tokenizer(data_path("gpt2"));
  EXPECT_EQ(decode(*tokenizer, std::vector<int32_t>{-1, tokenizer->info().vocab_size, INT32_MAX, INT32_MIN}), "");
}

TEST(Encode, TakesIllFormedTextAsReplacementCharacters) {
  const auto tokenizer = make_tokenizer(data_path("gpt2"));
  // As table 3-8 of the Unicode Standard says, there is one U+FFFD per maximal subpart.
  EXPECT_EQ(tokenizer->encode("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            tokenizer->encode("a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd"));
  EXPECT_EQ(tokenizer->encode("\xC0\xAF\xED\xA0\x80\xF4\x90\x80\x80"),
            tokenizer->encode("\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"));
  EXPECT_EQ(tokenizer->encode("\xF0\x9F\x91"), tokenizer->encode("\uFFFD"));
}

TEST(Encode, PartsFormWordsAcrossTheirBorders) {
  const auto tokenizer = make_tokenizer(data_path("smollm"));
  const std::vector<TextPart> parts{{"Hel", true}, {"lo wor", false}, {"ld", true}};
  EXPECT_EQ(tokenizer->encode_parts(parts, false), tokenizer->encode("Hello world"));
}

TEST(Encode, SpecialTokensCountOnlyInPartsThatAllowThem) {
  const auto tokenizer = make_tokenizer(data_path("smollm"));
  const int32_t start = *tokenizer->find("<|im_start|>");
  const std::vector<TextPart> parts{
      {"<|im_start|>", true}, {"<|im_start|>", false}, {"<|im_", false}, {"start|>", true}};
  const std::vector<int32_t> ids = tokenizer->encode_parts(parts, false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), start), 1);
  EXPECT_EQ(ids.front(), start);
  EXPECT_EQ(decode(*tokenizer, ids), "<|im_start|><|im_start|>");
}

TEST(IdTokenizer, WritesAndReadsIds) {
  const auto tokenizer = make_id_tokenizer(300);
  EXPECT_EQ(decode(*tokenizer, std::vector<int32_t>{0, 7, 299}), "<0><7><299>");
  EXPECT_EQ(tokenizer->encode("<0><7><299>"), (std::vector<int32_t>{0, 7, 299}));
  EXPECT_EQ(tokenizer->encode("a<300>"), (std::vector<int32_t>{'a', '<', '3', '0', '0', '>'}));
  EXPECT_EQ(make_id_tokenizer(10)->encode("a<07>"),
            (std::vector<int32_t>{'a' % 10, '<' % 10, '0' % 10, '7' % 10, '>' % 10}));
  EXPECT_FALSE(tokenizer->find("<300>"));
}

TEST(IdTokenizer, IsWhatWeightsWithoutAFileGet) {
  test::MapWeights weights("huggingface", {});
  weights.values["vocab_size"] = int64_t{32000};
  const auto tokenizer = make_tokenizer(weights);
  EXPECT_EQ(tokenizer->info().kind, "ids");
  EXPECT_EQ(tokenizer->info().vocab_size, 32000);
}

TEST(BuiltinTokenizers, AreListedByName) {
  std::vector<std::string_view> names;
  for (const TokenizerKind& kind : builtin_tokenizers()) names.push_back(kind.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"bpe", "sentencepiece", "ids"}));
}

}  // namespace
}  // namespace tenon
