// This tests one request, with a token a byte: what of its text is shown and when, and the numbers beside its tokens.
#include "../../../core/src/engine/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tenon {
namespace {

using testing::ElementsAre;

// Token b is the byte b.
class Bytes : public Tokenizer {
 public:
  Bytes() {
    info_.vocab_size = 256;
    for (int i = 0; i < 256; ++i) all_ += static_cast<char>(i);
  }
  std::vector<int32_t> encode_parts(std::span<const TextPart>, bool) const override { return {}; }
  std::string_view bytes(int32_t id) const override {
    return std::string_view(all_).substr(static_cast<size_t>(id), 1);
  }
  bool is_control(int32_t) const override { return false; }
  std::optional<int32_t> find(std::string_view) const override { return {}; }

 private:
  std::string all_;
};

struct Told {
  std::vector<std::string> shown;  // by call of on_token
  Result result;
};

// The request is given the bytes of `text` until it has enough.
Told tell(Request request, const std::string& text, uint32_t capacity = 1000) {
  const Bytes tokenizer;
  Told told;
  request.on_token = [&](const Token& t) {
    told.shown.emplace_back(t.text);
    return true;
  };
  if (request.max_new_tokens == 256) request.max_new_tokens = static_cast<uint32_t>(text.size());
  Sequence s({.request = std::move(request), .prompt = {'p', 'p'}, .end_tokens = {1}, .capacity = capacity}, tokenizer);
  for (const char c : text) {
    if (!s.take(static_cast<unsigned char>(c), {})) break;
  }
  EXPECT_TRUE(s.done());
  told.result = s.take_result();
  return told;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

struct StopCase {
  const char* name;
  std::vector<std::string> stop;
  const char *text, *left;
  FinishReason finish = FinishReason::kStopString;
};
void PrintTo(const StopCase& c, std::ostream* out) {
  *out << c.name;
}

class StopStrings : public testing::TestWithParam<StopCase> {};

TEST_P(StopStrings, AreNeitherShownNorPartOfTheText) {
  const StopCase& c = GetParam();
  const Told told = tell({.stop = c.stop}, c.text);
  EXPECT_EQ(told.result.text, c.left);
  EXPECT_EQ(joined(told.shown), c.left);
  EXPECT_EQ(told.result.finish, c.finish);
}

INSTANTIATE_TEST_SUITE_P(Of, StopStrings,
                         testing::Values(
                             // The longer one of what two of them could become is held back, in either order.
                             StopCase{"TwoBeginnings", {"abcX", "cY"}, "abcX", ""},
                             StopCase{"TwoBeginningsTurned", {"cY", "abcX"}, "abcX", ""},
                             StopCase{"OneByte", {"c"}, "abcd", "ab"}, StopCase{"AtOnce", {"ab"}, "abab", ""},
                             StopCase{"AfterItsOwnBeginning", {"aab"}, "aaab", "a"},
                             StopCase{"AtTheVeryEnd", {"cd"}, "abcd", "ab"},
                             StopCase{"AnEmptyOneMeansNothing", {""}, "abcd", "abcd", FinishReason::kLength},
                             StopCase{"ABeginningIsNone", {"cde"}, "abcd", "abcd", FinishReason::kLength}),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(Sequence, ShowsWhatCannotBecomeAStopStringAtOnce) {
  EXPECT_THAT(tell({.stop = {"bcX"}}, "abcdbc").shown, ElementsAre("a", "", "", "bcd", "", "", "bc"));
}

TEST(Sequence, EndsAtItsLimitItsCapacityOrAnEndToken) {
  const Told limited = tell({.max_new_tokens = 3}, "abcd");
  EXPECT_EQ(limited.result.text, "abc");
  EXPECT_EQ(limited.result.finish, FinishReason::kLength);
  const Told full = tell({.max_new_tokens = 9}, "abcd", 5);  // two of them are the prompt's
  EXPECT_EQ(full.result.text, "abc");
  EXPECT_EQ(full.result.finish, FinishReason::kCapacity);
  const Told ended = tell({.max_new_tokens = 9}, "ab\1c");
  EXPECT_THAT(ended.result.tokens, ElementsAre('a', 'b'));
  EXPECT_EQ(ended.result.finish, FinishReason::kEndOfText);
  EXPECT_EQ(tell({.ignore_end = true}, "ab\1c").result.tokens.size(), 4u);
}

// The probabilities are 1/2, 1/4, 1/8 and 1/8: of equals the lower id comes first, and takes the last place.
TEST(Sequence, RanksTopLogprobsByValueAndThenById) {
  const Bytes tokenizer;
  const std::vector<float> logits = {std::log(1.0F), std::log(4.0F), std::log(1.0F), std::log(2.0F)};
  std::vector<Logprob> top;
  Request r{.max_new_tokens = 2, .logprobs = true, .top_logprobs = 3};
  r.on_token = [&](const Token& t) {
    top.assign(t.top.begin(), t.top.end());
    return true;
  };
  Sequence s({.request = std::move(r), .prompt = {1}, .end_tokens = {}, .capacity = 100}, tokenizer);
  s.take(2, logits);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_THAT((std::vector{top[0].id, top[1].id, top[2].id}), ElementsAre(1, 3, 0));
  EXPECT_FLOAT_EQ(top[0].value, std::log(0.5F));
  EXPECT_FLOAT_EQ(top[1].value, std::log(0.25F));
  EXPECT_FLOAT_EQ(top[2].value, std::log(0.125F));
  const Result result = s.take_result();
  ASSERT_EQ(result.logprobs.size(), 1u);
  EXPECT_EQ(result.logprobs[0].id, 2);
  EXPECT_FLOAT_EQ(result.logprobs[0].value, std::log(0.125F));
}

}  // namespace
}  // namespace tenon
