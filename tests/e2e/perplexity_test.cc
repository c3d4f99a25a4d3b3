// These tests run `tenon eval perplexity` over short texts.
#include <gtest/gtest.h>

#include <cmath>

#include "program.h"

namespace tenon::e2e {
namespace {

// The tokens that were generated, scored as the second half of one window but for its first token, have the
// probabilities that they had.
TEST(Perplexity, IsThatOfTheProbabilitiesThatGeneratingGave) {
  std::string text;
  for (int i = 10; i < 42; ++i) text += "<" + std::to_string(i) + ">";
  const boost::json::value made =
      tenon_json({"generate", kStories, "-p", text, "-n", "32", "--ignore-end", "--json", "--logprobs", "1"});
  ASSERT_EQ(made.at("prompt_tokens").as_array().size(), 32u);
  double sum = 0;
  for (const boost::json::value& entry : made.at("logprobs").as_array()) {
    if (&entry != made.at("logprobs").as_array().begin()) sum += entry.at("logprob").to_number<double>();
    text += "<" + std::to_string(entry.at("id").as_int64()) + ">";
  }
  const std::string file = temporary_folder() / "text";
  write_file(file, text + "<1><2><3>");  // tokens that fill no window are left out
  const Words words = {"eval", "perplexity", kStories, "--text", file, "--context", "64", "--json"};
  const boost::json::value json = tenon_json(words);
  EXPECT_EQ(json.at("windows").to_number<int>(), 1);
  EXPECT_EQ(json.at("tokens_scored").to_number<int>(), 31);
  const double expected = std::exp(-sum / 31);
  EXPECT_NEAR(json.at("perplexity").to_number<double>(), expected, 1e-5 * expected);
  EXPECT_EQ(json.at("perplexity"), tenon_json(words + Words{"--threads", "3"}).at("perplexity"));
}

TEST(Perplexity, ScoresLongWindowsInPieces) {
  std::string text;
  for (int i = 0; i < 700; ++i) text += "<" + std::to_string(i * 37 % 1000) + ">";
  const std::string file = temporary_folder() / "text";
  write_file(file, text);
  const Outcome outcome = tenon({"eval", "perplexity", kStories, "--text", file, "--context", "300"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("over 298 tokens in 2 windows of 300"), std::string::npos) << outcome.out;
}

TEST(Perplexity, SaysHowMuchTextIsMissing) {
  const std::string file = temporary_folder() / "text";
  write_file(file, "<1><2><3>");
  const Outcome outcome = tenon({"eval", "perplexity", kStories, "--text", file, "--context", "64"});
  EXPECT_EQ(outcome.code, 8);
  EXPECT_NE(outcome.err.find("3 tokens"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("64"), std::string::npos) << outcome.err;
  EXPECT_EQ(tenon({"eval", "perplexity", kStories, "--text", file + ".not"}).code, 7);
}

}  // namespace
}  // namespace tenon::e2e
