// This tests merging, added tokens, and what the files beside the vocabulary add.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "added_tokens.h"
#include "bpe_model.h"
#include "support.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

using test::data_path;
using testing::ElementsAre;

TEST(BpeModel, LongAndShortPiecesMergeAlike) {
  // The short way and the long way must agree with the definition: the lowest rank, leftmost, until none is left.
  const std::vector<std::string> tokens{"a", "b", "c", "ab", "bc", "abc", "aa", "cab", "aab"};
  const text::Vocabulary vocabulary(tokens);
  const std::vector<text::MergeRule> merges{{1, 2, 4}, {0, 0, 6}, {0, 1, 3}, {2, 3, 7},
                                            {0, 4, 5}, {6, 1, 8}, {0, 3, 8}};
  const text::BpeModel model(vocabulary, merges, {});
  std::mt19937 random(7);
  for (size_t length = 1; length < 120; ++length) {
    std::string text;
    std::vector<int32_t> wanted;
    for (size_t i = 0; i < length; ++i) {
      wanted.push_back(static_cast<int32_t>(random() % 3));
      text += tokens[static_cast<size_t>(wanted.back())];
    }
    for (bool merged = true; merged;) {
      merged = false;
      for (const text::MergeRule& rule : merges) {
        for (size_t i = 0; i + 1 < wanted.size() && !merged; ++i) {
          if (wanted[i] != rule.left || wanted[i + 1] != rule.right) continue;
          wanted[i] = rule.merged;
          wanted.erase(wanted.begin() + static_cast<ptrdiff_t>(i) + 1);
          merged = true;
        }
        if (merged) break;
      }
    }
    text::BpeScratch scratch;
    std::vector<int32_t> ids;
    model.encode(text, scratch, ids);
    EXPECT_EQ(ids, wanted) << text;
  }
}

TEST(BpeModel, UnknownsFuseOrNot) {
  const text::Vocabulary vocabulary(std::vector<std::string>{"?", "a"});
  for (const bool fuse : {false, true}) {
    const text::BpeModel model(vocabulary, {}, {.unknown = 0, .fuse_unknown = fuse});
    text::BpeScratch scratch;
    std::vector<int32_t> ids;
    model.encode("xya\u4E00", scratch, ids);
    EXPECT_EQ(ids, fuse ? (std::vector<int32_t>{0, 1, 0}) : (std::vector<int32_t>{0, 0, 1, 0}));
  }
}

std::vector<std::string> cut(std::vector<text::AddedToken> tokens, const std::string& text, bool special = true) {
  const text::TextRange whole{0, text.size()};
  std::vector<std::string> parts;
  for (const auto& part : text::AddedTokenMatcher(std::move(tokens)).split(text, std::span(&whole, special ? 1 : 0))) {
    parts.push_back((part.id < 0 ? "" : std::to_string(part.id) + ":") +
                    text.substr(part.begin, part.end - part.begin));
  }
  return parts;
}

TEST(AddedTokens, TheLongestLeftmostNameWins) {
  EXPECT_THAT(cut({{.id = 1, .name = "ab"}, {.id = 2, .name = "abc"}, {.id = 3, .name = "bcd"}}, "xabcdab"),
              ElementsAre("x", "2:abc", "d", "1:ab"));
  EXPECT_THAT(cut({{.id = 1, .name = "<s>", .special = true}, {.id = 2, .name = "s"}}, "<s>s", false),
              ElementsAre("<", "2:s", ">", "2:s"));
}

TEST(AddedTokens, FlagsTakeBlanksAndDemandBorders) {
  EXPECT_THAT(cut({{.id = 1, .name = "M", .lstrip = true}}, "a \t M b"), ElementsAre("a", "1: \t M", " b"));
  EXPECT_THAT(cut({{.id = 1, .name = "M", .rstrip = true}}, "a M \u3000b"), ElementsAre("a ", "1:M \u3000", "b"));
  EXPECT_THAT(cut({{.id = 1, .name = "M", .single_word = true}}, "M Ma \u00E9M -M-"),
              ElementsAre("1:M", " Ma \u00E9M -", "1:M", "-"));
}

TEST(HuggingFaceFolder, TakesBosEosAndTemplateFromTheFilesBeside) {
  test::TemporaryFolder folder;
  folder.write("tokenizer.json", test::read_text(data_path("smollm") / "tokenizer.json"));
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>", "add_bos_token": false,
                   "added_tokens_decoder": {"1000": {"content": "<extra>", "special": true}},
                   "chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]})");
  folder.write("generation_config.json", R"({"eos_token_id": [2, 1000]})");
  const auto tokenizer = make_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->info().bos, 1);
  EXPECT_EQ(tokenizer->info().eos, 2);
  EXPECT_FALSE(tokenizer->info().adds_bos);
  EXPECT_EQ(tokenizer->info().chat_template, "yes");
  EXPECT_THAT(tokenizer->info().end_of_generation, ElementsAre(0, 2, 1000));
  EXPECT_EQ(tokenizer->find("<extra>"), 1000);
  EXPECT_EQ(tokenizer->encode("<extra>", {.parse_special = true}), (std::vector<int32_t>{1000}));
  EXPECT_TRUE(tokenizer->is_control(1000));
}

// Programs that read such a folder do not agree on which of the two counts.
TEST(HuggingFaceFolder, TheConfigurationAndThePostProcessorMustAgree) {
  test::TemporaryFolder folder;
  folder.write("tokenizer.json", test::read_text(data_path("llama2") / "tokenizer.json"));
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false})");
  try {
    make_tokenizer(folder.path());
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("add_bos_token: is false, and the post_processor of tokenizer.json adds the "
                                   "token: they contradict each other"));
  }
}

TEST(HuggingFaceFolder, SentencePieceTakesAddedTokensAfterItsPieces) {
  test::TemporaryFolder folder;
  folder.write("tokenizer.model", test::read_text(data_path("sentencepiece") / "tokenizer.model"));
  folder.write("tokenizer_config.json",
               R"({"added_tokens_decoder": {"700": {"content": "<|im_end|>", "special": true}}})");
  const auto tokenizer = make_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->info().vocab_size, 701);
  EXPECT_EQ(tokenizer->info().bos, 1);
  EXPECT_THAT(tokenizer->info().end_of_generation, ElementsAre(2, 700));
  EXPECT_EQ(tokenizer->encode("<s><|im_end|>", {.parse_special = true}), (std::vector<int32_t>{1, 1, 700}));
  EXPECT_EQ(decode(*tokenizer, tokenizer->encode("<|im_end|>")), "<|im_end|>");
}

TEST(HuggingFaceFolder, IsFoundBesideTheWeights) {
  const test::MapWeights weights("huggingface", {data_path("qwen2") / "model.safetensors"});
  EXPECT_EQ(make_tokenizer(weights)->info().kind, "bpe");
}

}  // namespace
}  // namespace tenon
