// Models of the families go to GGUF in F32, and from there generate the tokens that transformers generates.
#include <gtest/gtest.h>

#include "program.h"

namespace tenon::e2e {
namespace {

class ThroughGguf : public ::testing::TestWithParam<const char*> {};

TEST_P(ThroughGguf, GreedyTokensAreThoseOfTransformers) {
  const std::string model = golden(GetParam()).string(), file = (temporary_folder() / "model.gguf").string();
  const Outcome quantized = tenon({"quantize", model, file, "--scheme", "F32"});
  ASSERT_EQ(quantized.code, 0) << quantized.err;
  const boost::json::value expected = boost::json::parse(read_file(golden(GetParam()) / "golden.json"));
  for (const boost::json::value& prompt : expected.at("prompts").as_array()) {
    if (!prompt.at("text").is_string()) continue;
    const std::string text(prompt.at("text").as_string());
    const boost::json::value found = tenon_json(Words{"generate", file, "-p", text, "-n", "64", "--ignore-end",
                                                      "--json", "--set", "quantization.activations=f32", "--set",
                                                      "kv_cache.format=fp32", "--set", "kv_cache.capacity=512"} +
                                                greedy());
    EXPECT_EQ(found.at("prompt_tokens"), prompt.at("ids"));
    EXPECT_EQ(found.at("tokens"), prompt.at("greedy"));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ThroughGguf,
                         ::testing::Values("tiny-gqa-untied", "tiny-qwen2", "tiny-qwen3-tied", "tiny-granite",
                                           "tiny-olmo2", "tiny-stablelm", "tiny-stablelm-parallel", "tiny-phi3",
                                           "tiny-phi3-longrope"));

}  // namespace
}  // namespace tenon::e2e
