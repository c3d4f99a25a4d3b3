// This tests `tenon eval choices` and `tenon eval retrieval`, and the lines by place of `tenon eval perplexity` and
// `kld`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "program.h"

namespace tenon::e2e {
namespace {

using testing::HasSubstr;

std::string token(int id) {
  return "<" + std::to_string(id) + ">";
}

// Returns the log-likelihood of the last two of five tokens, which are those that a window of five scores.
double of_last_two(const std::string& text) {
  const std::string file = temporary_folder() / "text";
  write_file(file, text);
  const boost::json::value json =
      tenon_json({"eval", "perplexity", kStories, "--text", file, "--context", "5", "--json"});
  EXPECT_EQ(json.at("tokens_scored").to_number<int>(), 2) << text;
  return -2 * json.at("mean_negative_log_likelihood").to_number<double>();
}

TEST(Choices, TheLikeliestEndingIsTheAnswer) {
  std::string questions;
  int right = 0, right_by_length = 0;
  for (int q = 0; q < 8; ++q) {
    const std::string context = token(300 + 7 * q) + token(9 + q) + token(50 + 31 * q);
    std::array<double, 3> sum{}, by_length{};
    boost::json::array endings;
    for (int e = 0; e < 3; ++e) {
      const std::string ending = token(e == 0 ? 5 + q : 4000 * e + 211 * q);  // it is a blank and one token
      endings.emplace_back(ending);
      sum[e] = of_last_two(context + " " + ending);
      by_length[e] = sum[e] / static_cast<double>(ending.size() + 1);
    }
    right += std::max_element(sum.begin(), sum.end()) - sum.begin() == q % 3 ? 1 : 0;
    right_by_length += std::max_element(by_length.begin(), by_length.end()) - by_length.begin() == q % 3 ? 1 : 0;
    questions +=
        boost::json::serialize(boost::json::object{{"ctx", context}, {"endings", endings}, {"label", q % 3}}) + "\n";
  }
  const std::string file = temporary_folder() / "questions";
  write_file(file, questions);
  const Words words = {"eval", "choices", kStories, "--questions", file, "--context", "16", "--json"};
  const boost::json::value json = tenon_json(words);
  EXPECT_EQ(json.at("questions").to_number<int>(), 8);
  EXPECT_DOUBLE_EQ(json.at_pointer("/right/share").to_number<double>(), right / 8.0);
  EXPECT_DOUBLE_EQ(json.at_pointer("/right_by_length/share").to_number<double>(), right_by_length / 8.0);
  EXPECT_NE(right, right_by_length);
  EXPECT_NEAR(json.at("chance").to_number<double>(), 1 / 3.0, 1e-12);
  EXPECT_EQ(tenon_json(words + Words{"--max-questions", "3"}).at("questions").to_number<int>(), 3);
  EXPECT_THAT(tenon({"eval", "choices", kStories, "--questions", file, "--context", "16"}).out,
              HasSubstr("over 8 questions"));
}

TEST(Choices, AQuestionThatDoesNotFitIsNamed) {
  const std::string file = temporary_folder() / "questions";
  write_file(file,
             "{\"ctx\": \"<1>\", \"endings\": [\"<2>\", \"<3>\"], \"label\": 0}\n"
             "{\"ctx\": \"<1><1><1>\", \"endings\": [\"<2>\", \"<3>\"], \"label\": 0}\n");
  const Outcome outcome = tenon({"eval", "choices", kStories, "--questions", file, "--context", "4"});
  EXPECT_EQ(outcome.code, 8);
  EXPECT_THAT(outcome.err, HasSubstr(file + ":2: error: takes 5 tokens with an ending; there is room for 4"));
}

TEST(Retrieval, CountsTextsByLengthAndDepth) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += token(i * 37 % 1000);
  const std::string file = temporary_folder() / "text";
  write_file(file, text);
  const Words words = {"eval",     "retrieval", kStories, "--text", file,      "--lengths", "100",   "140",
                       "--depths", "0",         "0.5",    "1",      "--tries", "2",         "--json"};
  const boost::json::value json = tenon_json(words);
  EXPECT_EQ(json.at("tries").to_number<int>(), 12);
  EXPECT_EQ(json.at("cells").as_array().size(), 6u);
  EXPECT_EQ(json.at_pointer("/cells/4/length").to_number<int>(), 140);
  EXPECT_EQ(json.at_pointer("/cells/4/depth").to_number<double>(), 0.5);
  EXPECT_EQ(json.at_pointer("/cells/4/tries").to_number<int>(), 2);
  EXPECT_EQ(tenon_json(words).at("mean_log_likelihood"), json.at("mean_log_likelihood"));
  const Outcome long_text = tenon({"eval", "retrieval", kStories, "--text", file, "--lengths", "512"});
  EXPECT_EQ(long_text.code, 8);
  EXPECT_THAT(long_text.err, HasSubstr("of the text, which has 300"));
}

TEST(Buckets, TogetherAreTheWhole) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += token(i * 37 % 1000);
  const std::filesystem::path folder = temporary_folder();
  const std::string file = folder / "text", base = folder / "base";
  write_file(file, text);
  const Words windows = {"--text", file, "--json", "--buckets", "3"};
  const boost::json::value whole =
      tenon_json(Words{"eval", "perplexity", kStories, "--context", "64", "--save-logits", base} + windows);
  const boost::json::value compared =
      tenon_json(Words{"eval", "kld", kStories, "--base", base, "--set", "kv_cache.use=int8"} + windows);
  // 3 windows score their tokens 33 to 63 each.
  const int borders[] = {33, 43, 53, 64};
  double sum = 0, divergence = 0;
  for (size_t b = 0; b < 3; ++b) {
    const boost::json::value &bucket = whole.at("buckets").at(b), &other = compared.at("buckets").at(b);
    EXPECT_EQ(bucket.at("begin").to_number<int>(), borders[b]);
    EXPECT_EQ(bucket.at("end").to_number<int>(), borders[b + 1]);
    const int tokens = borders[b + 1] - borders[b];
    sum += tokens * std::log(bucket.at("perplexity").to_number<double>());
    divergence += tokens * other.at_pointer("/kld/mean").to_number<double>();
    EXPECT_LT(bucket.at("interval_95").at(0).to_number<double>(), bucket.at("perplexity").to_number<double>());
  }
  EXPECT_NEAR(sum / 31, whole.at("mean_negative_log_likelihood").to_number<double>(), 1e-9);
  EXPECT_NEAR(divergence / 31, compared.at_pointer("/kld/mean").to_number<double>(), 1e-12);
  EXPECT_GT(divergence, 0);
  const Outcome outcome = tenon({"eval", "perplexity", kStories, "--text", file, "--context", "16", "--buckets", "8"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--buckets is 8, and a window of 16 tokens scores 7"));
}

}  // namespace
}  // namespace tenon::e2e
