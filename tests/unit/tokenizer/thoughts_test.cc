// A model's thought is told from its answer, however the text is cut into pieces.
#include "tenon/core/thoughts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.h"

namespace tenon {
namespace {

ThoughtReader::Piece read(Thoughts thoughts, std::string_view text, size_t size) {
  ThoughtReader reader(thoughts);
  ThoughtReader::Piece all;
  const auto take = [&](const ThoughtReader::Piece& piece) {
    all.thought += piece.thought;
    all.text += piece.text;
  };
  for (size_t at = 0; at < text.size(); at += size) take(reader.add(text.substr(at, size), false));
  take(reader.add("", true));
  return all;
}

void expect(Thoughts thoughts, std::string_view text, std::string_view thought, std::string_view answer) {
  for (size_t size = 1; size <= text.size() + 1; ++size) {
    const ThoughtReader::Piece piece = read(thoughts, text, size);
    EXPECT_EQ(piece.thought, thought) << text << ", in pieces of " << size;
    EXPECT_EQ(piece.text, answer) << text << ", in pieces of " << size;
  }
}

TEST(Thoughts, StandBeforeTheAnswer) {
  expect(Thoughts::kMayBe, "<think>\nTwo and two.\n\nFour? \n</think>\n\nIt is 4.\n", "Two and two.\n\nFour?",
         "It is 4.\n");
  expect(Thoughts::kMayBe, " \n<think>a < b </thin</think>c <think>d</think>", "a < b </thin", "c <think>d</think>");
  expect(Thoughts::kMayBe, "<think></think>x", "", "x");
  expect(Thoughts::kMayBe, "<think>\n\n</think>\n\nx", "", "x");
}

TEST(Thoughts, MayHaveBeenBegunByThePrompt) {
  expect(Thoughts::kBegun, "\nTwo.\n</think>\n4", "Two.", "4");
  expect(Thoughts::kBegun, "</think>4", "", "4");
}

TEST(Thoughts, MayBeMissing) {
  expect(Thoughts::kMayBe, "It is 4. <think>no</think>", "", "It is 4. <think>no</think>");
  expect(Thoughts::kMayBe, "  <thin air>", "", "  <thin air>");
  expect(Thoughts::kMayBe, " <thi", "", " <thi");
  expect(Thoughts::kMayBe, "", "", "");
  expect(Thoughts::kNone, "<think>a</think>b", "", "<think>a</think>b");
}

TEST(Thoughts, ThatDoNotEndHaveNoAnswer) {
  expect(Thoughts::kMayBe, "<think>on and on </thi", "on and on </thi", "");
  expect(Thoughts::kBegun, "on and on \n", "on and on", "");
}

TEST(Thoughts, MayHaveAChannel) {
  constexpr Thoughts kChannels = Thoughts::kChannels;
  expect(kChannels, "<|channel|>analysis<|message|>1 < 2 <|<|end|><|start|>assistant<|channel|>final<|message|> Yes.\n",
         "1 < 2 <|", " Yes.\n");
  expect(kChannels, "<|channel|>final<|message|>Yes.<|return|>", "", "Yes.");
  // Two messages of one kind are two lines. What a model shows before it calls a function is text.
  expect(kChannels,
         "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>\n"
         "<|start|>assistant<|channel|>commentary<|message|>c<|start|>assistant<|channel|>final<|message|>d<|end|>",
         "a\nb", "c\nd");
  // Nobody runs built-in tools.
  expect(kChannels, "<|channel|>analysis to=python<|message|>1 + 1<|call|>", "1 + 1", "");
  for (const std::string header :
       {" to=functions.f<|channel|>commentary json", "<|channel|>commentary to=functions.f <|constrain|>json"}) {
    const std::string call = header + "<|message|>{\"a\": 1}";
    expect(kChannels, call, "", "<|start|>" + call);
    expect(kChannels, "<|channel|>analysis<|message|>t<|end|><|start|>assistant" + call + "<|call|>", "t",
           "<|start|>assistant" + call + "<|end|>");
  }
}

TEST(Thoughts, OfAnAnswerWithoutChannelsAreNone) {
  constexpr Thoughts kChannels = Thoughts::kChannels;
  for (const std::string text : {"It is 4. <|message|>x", "t", "total<|message|>", "<|end|>", "a\n"}) {
    expect(kChannels, text, "", text == "t" ? "" : text);  // it could be the beginning of to=
  }
  expect(kChannels, "<|channel|>analysis", "", "");  // it ends in its header
  expect(kChannels, "<|channel|>final<|message|>", "", "");
  const std::string long_header = "<|channel|>" + std::string(300, 'x') + "<|message|>y";
  expect(kChannels, long_header, "", long_header);
  expect(kChannels, "<|channel|>analysis<|message|>a<|end|>b", "a", "b");
}

TEST(Thoughts, HaveMarksThatTextsShow) {
  const auto tokenizer = test::tokenizer_with_channels();
  EXPECT_THAT(thought_tokens(Thoughts::kChannels, *tokenizer),
              testing::ElementsAre(1000, 1001, 1002, 1003, 1004, 1005, 1006));
  EXPECT_THAT(thought_tokens(Thoughts::kMayBe, *tokenizer), testing::IsEmpty());  // they are no tokens of it
  const std::vector<int32_t> ids = tokenizer->encode("<|channel|>final<|end|>", {.parse_special = true});
  const std::vector<int32_t> shown = {1001};
  EXPECT_EQ(decode(*tokenizer, ids, {.shown = shown}), "<|channel|>final");
  EXPECT_EQ(decode(*tokenizer, ids), "final");
}

}  // namespace
}  // namespace tenon
