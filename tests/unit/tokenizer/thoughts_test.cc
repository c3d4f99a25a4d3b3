// A model's thought is told from its answer, however the text is cut into pieces.
#include "tenon/core/thoughts.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tenon
