// This tests /v1/embeddings without a socket: what of a body is taken and refused, and the vectors as JSON.
#include "embeddings.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tenon/core/error.h"

namespace tenon::serve {
namespace {

namespace json = boost::json;

Abilities abilities() {
  Abilities a;
  a.models = {"tiny"};
  a.vocab = 100;
  a.width = 4;
  a.most_inputs = 3;
  return a;
}

EmbeddingRequest parse(const std::string& body, const Abilities& a = abilities()) {
  return parse_embeddings(parse_object(body), a);
}

std::string refused(const std::string& body) {
  try {
    parse(body);
  } catch (const ApiError& e) {
    return e.param;
  }
  return "none";
}

Event ended(uint32_t choice, std::vector<float> vector) {
  Event e;
  e.choice = choice;
  e.last = true;
  e.prompt_tokens = 3;
  e.embedding = std::move(vector);
  return e;
}

TEST(EmbeddingRequests, TakeInputsOfAllKinds) {
  const EmbeddingRequest one = parse(R"({"input": "x", "model": "tiny", "priority": 2, "dimensions": 4})");
  ASSERT_EQ(one.requests.prompts.size(), 1U);
  EXPECT_EQ(one.requests.prompts[0].prompt, "x");
  EXPECT_EQ(one.requests.prompts[0].embed, Pooling::kMean);
  EXPECT_EQ(one.requests.prompts[0].priority, -2);
  EXPECT_TRUE(one.normalize && !one.base64);
  const EmbeddingRequest two = parse(
      R"({"input": ["x", [1, 2]], "pooling": "last", "normalize": false, "encoding_format": "base64", "user": "me"})");
  ASSERT_EQ(two.requests.prompts.size(), 2U);
  EXPECT_EQ(two.requests.prompts[1].tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(two.requests.prompts[1].embed, Pooling::kLast);
  EXPECT_EQ(two.requests.prompts[1].client, "");
  EXPECT_TRUE(!two.normalize && two.base64);
  EXPECT_EQ(parse(R"({"input": [5, 6]})").requests.prompts.at(0).tokens, (std::vector<int32_t>{5, 6}));
  Abilities by_user = abilities();
  by_user.users = true;
  EXPECT_EQ(parse(R"({"input": "x", "user": "me"})", by_user).requests.prompts.at(0).client, "me");
}

TEST(EmbeddingRequests, AreRefusedByTheField) {
  for (const char* body : {R"({})", R"({"input": ""})", R"({"input": []})", R"({"input": [[]]})", R"({"input": [100]})",
                           R"({"input": ["a", 1]})", R"({"input": ["a", "b", "c", "d"]})", R"({"input": ["a", ""]})"}) {
    EXPECT_EQ(refused(body), "input") << body;
  }
  EXPECT_EQ(refused(R"({"input": "x", "dimensions": 3})"), "dimensions");
  EXPECT_EQ(refused(R"({"input": "x", "pooling": "max"})"), "pooling");
  EXPECT_EQ(refused(R"({"input": "x", "encoding_format": "f16"})"), "encoding_format");
  EXPECT_EQ(refused(R"({"input": "x", "max_tokens": 3})"), "max_tokens");
}

TEST(EmbeddingAnswers, HaveTheVectorsInTheOrderOfTheInputs) {
  EmbeddingAnswer answer(parse(R"({"input": ["x", "y"]})"), "tiny", 50);
  EXPECT_EQ(answer.add({ended(1, {0, 0, 0, 0})}), "");
  EXPECT_FALSE(answer.complete());
  answer.add({ended(0, {3, 0, 4, 0})});
  ASSERT_TRUE(answer.complete() && !answer.failure());
  const json::value whole = json::parse(answer.whole());
  const json::array& data = whole.at("data").as_array();
  ASSERT_EQ(data.size(), 2U);
  const std::vector<double> expected = {0.6, 0, 0.8, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(data[0].at("embedding").at(i).to_number<double>(), expected[i], 1e-7);
    EXPECT_EQ(data[1].at("embedding").at(i).to_number<double>(), 0) << "zeros have no length to be divided by";
  }
  EXPECT_EQ(whole.at("usage"), (json::value{{"prompt_tokens", 6}, {"total_tokens", 6}}));
  EXPECT_EQ(whole.at("model"), "tiny");
}

TEST(EmbeddingAnswers, InBase64AreLittleEndianFloats) {
  EmbeddingAnswer answer(parse(R"({"input": "x", "encoding_format": "base64", "normalize": false})"), "tiny", 50);
  answer.add({ended(0, {1, -2})});
  EXPECT_EQ(json::parse(answer.whole()).at("data").at(0).at("embedding"), "AACAPwAAAMA=");
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("f"), "Zg==");
  EXPECT_EQ(base64_of("fo"), "Zm8=");
  EXPECT_EQ(base64_of("foo"), "Zm9v");
  EXPECT_EQ(base64_of("\xff\xfe\xfd\xfc"), "//79/A==");
}

TEST(EmbeddingAnswers, TellOfAnInputThatIsTooLong) {
  EmbeddingAnswer answer(parse(R"({"input": "x"})"), "tiny", 50);
  Event e = ended(0, {});
  e.finish = FinishReason::kError;
  e.prompt_tokens = 50;
  e.failure = failure_by(std::make_exception_ptr(Error(ErrorCode::kRequest, "it is too long")));
  answer.add({e});
  ASSERT_TRUE(answer.failure().has_value());
  EXPECT_EQ(answer.failure()->param, "input");
  EXPECT_EQ(answer.failure()->code, "context_length_exceeded");
}

}  // namespace
}  // namespace tenon::serve
