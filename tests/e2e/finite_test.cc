// These tests look at what the commands say and print where a model computes what is not finite: an exit code of its
// own, no text, no speed, and JSON that is JSON.
#include <gtest/gtest.h>

#include <limits>

#include "program.h"
#include "support/spoilt_model.h"

namespace tenon::e2e {
namespace {

constexpr int kNumbers = 11;

class FiniteCommands : public ::testing::Test {
 protected:
  FiniteCommands() : model_(golden("tiny-gqa-untied")) {
    model_.set("model.layers.1.mlp.down_proj.weight", 7, std::numeric_limits<float>::quiet_NaN());
  }
  Words words(const Words& command) const {
    return command + Words{model_.path().string(), "--set", "quantization.use=none", "--set", "kv_cache.capacity=128"};
  }
  static void expect_error(const Outcome& o) {
    EXPECT_EQ(o.code, kNumbers) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_NE(o.err.find("error: the logits after "), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("model.layers.1.mlp.down_proj.weight holds nan in row 0, column 7"), std::string::npos)
        << o.err;
    EXPECT_EQ(o.err.find("tok/s"), std::string::npos) << o.err;
  }

  test::SpoiltModel model_;
};

TEST_F(FiniteCommands, GenerateEndsWithACodeOfItsOwn) {
  const Words plain = words({"generate", "-p", "Once", "-n", "8"});
  for (const Words& more : {Words{}, Words{"--json"}, Words{"--json", "--logprobs", "2"}, Words{"--threads", "1"}}) {
    expect_error(tenon(plain + more));
  }
}

TEST_F(FiniteCommands, ATraceOfItIsWhole) {
  const std::filesystem::path trace = temporary_folder() / "finite.json";
  expect_error(tenon(words({"generate", "-p", "Once", "-n", "8", "--trace", trace.string()})));
  if (std::filesystem::exists(trace)) {
    EXPECT_EQ(tenon({"trace", "check", trace.string()}).code, 0);
  }
}

TEST_F(FiniteCommands, EvalPrintsNoPerplexity) {
  const std::filesystem::path text = temporary_folder() / "finite.txt", base = temporary_folder() / "finite.base";
  std::string words_of_text;
  for (int i = 0; i < 60; ++i) words_of_text += "Once upon a time ";
  write_file(text, words_of_text);
  const Words scored = {"--text", text.string(), "--context", "64"};
  for (const Words& more : {Words{}, Words{"--json"}, Words{"--save-logits", base.string()}}) {
    expect_error(tenon(words({"eval", "perplexity"}) + scored + more));
  }
  EXPECT_FALSE(std::filesystem::exists(base));
  ASSERT_EQ(
      tenon(Words{"eval", "perplexity", golden("tiny-gqa-untied").string(), "--save-logits", base.string()} + scored)
          .code,
      0);
  for (const Words& more : {Words{}, Words{"--json"}}) {
    expect_error(tenon(words({"eval", "kld"}) + Words{"--text", text.string(), "--base", base.string()} + more));
  }
}

TEST_F(FiniteCommands, BenchPrintsNoSpeed) {
  const Words runs = {"--warmups", "0", "--runs", "1", "--prompt-tokens", "8", "--new-tokens", "4"};
  const Outcome o = tenon(words({"bench"}) + runs + Words{"--format", "json"});
  EXPECT_EQ(o.code, 1) << o.err;
  const boost::json::value point = boost::json::parse(o.out).at_pointer("/points/0");
  EXPECT_NE(point.at("error").as_string().find("are not finite"), std::string::npos) << o.out;
  EXPECT_EQ(point.as_object().if_contains("decode_tok_per_s"), nullptr);
}

}  // namespace
}  // namespace tenon::e2e
