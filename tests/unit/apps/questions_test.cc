// These tests read multiple-choice questions in HellaSwag's and MMLU's forms, right ones and wrong ones.
#include "questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"

namespace tenon::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    read_questions(text, "file.jsonl");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kRequest);
    return e.what();
  }
  ADD_FAILURE() << text << " was taken";
  return "";
}

TEST(Questions, AreReadInHellaSwagsForm) {
  const auto all = read_questions(
      "{\"ind\": 4, \"activity_label\": \"Cooking\", \"ctx\": \"A man\", \"endings\": [\"sings.\", \"swims.\"], "
      "\"label\": \"1\"}\n"
      "\n"
      "{\"ctx\": \"B\", \"endings\": [\"x\", \"y\", \"z\"], \"label\": 2}\n",
      "file");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].context, "Cooking: A man");
  EXPECT_THAT(all[0].endings, ElementsAre(" sings.", " swims."));
  EXPECT_EQ(all[0].answer, 1u);
  EXPECT_EQ(all[1].context, "B");
  EXPECT_EQ(all[1].answer, 2u);
  EXPECT_EQ(all[1].line, 3u);
}

TEST(Questions, AreReadInMmlusForm) {
  const auto all = read_questions(
      R"([{"question": "2 + 2?", "choices": ["3", "4"], "answer": "B"},
          {"question": "1?", "choices": ["1", "5", "6"], "answer": 0, "subject": "x"}])",
      "file");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].context, "2 + 2?\nA. 3\nB. 4\nAnswer:");
  EXPECT_THAT(all[0].endings, ElementsAre(" A", " B"));
  EXPECT_EQ(all[0].answer, 1u);
  EXPECT_EQ(all[1].answer, 0u);
  EXPECT_EQ(all[1].line, 2u);
}

TEST(Questions, AllThatIsWrongIsSaidWithItsLine) {
  const std::string said = refusal(
      "{\"ctx\": \"B\", \"endings\": [\"x\", \"y\"], \"label\": 2}\n"
      "{\"ctx\": 5, \"endings\": [\"x\", \"y\"], \"label\": 0}\n"
      "{\"endings\": [\"x\", \"y\"], \"label\": 0}\n"
      "{\"question\": \"?\", \"choices\": [\"x\"], \"answer\": 0}\n"
      "{\"question\": \"?\", \"choices\": [\"x\", 1], \"answer\": 0}\n"
      "{\"question\": \"?\", \"choices\": [\"x\", \"y\"], \"answer\": -1}\n"
      "{\"question\": \"?\", \"choices\": [\"x\", \"y\"], \"answer\": \"C\"}\n"
      "{\"ctx\": \"B\"}\n"
      "[1]\n"
      "{\"ctx\": \n");
  for (const char* part :
       {"file.jsonl:1: error: \"label\" is 2, and not one of 0 to 1", "file.jsonl:2: error: \"ctx\" is no text",
        "file.jsonl:3: error: has no \"ctx\"", "file.jsonl:4: error: \"choices\" is no list of two texts or more",
        "file.jsonl:5: error: \"choices\" holds something that is no text",
        "file.jsonl:6: error: \"answer\" is -1, and not one of 0 to 1",
        "file.jsonl:7: error: \"answer\" is \"C\", and not one of 0 to 1",
        "file.jsonl:8: error: has neither \"endings\"", "file.jsonl:9: error: is no JSON object",
        "file.jsonl:10: error: is no JSON: "}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
  EXPECT_THAT(refusal(""), HasSubstr("there are no questions"));
  EXPECT_THAT(refusal("[]"), HasSubstr("there are no questions"));
  EXPECT_THAT(refusal("[1,"), HasSubstr("is no list in JSON"));
}

}  // namespace
}  // namespace tenon::app
