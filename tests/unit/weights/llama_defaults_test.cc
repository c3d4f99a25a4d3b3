// These tests look at what a description means that leaves a key out: the defaults of transformers' LlamaConfig and
// MistralConfig and of llama.cpp, as published numbers.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/family/family_model.h"
#include "support/weights_writer.h"

namespace tenon::family {
namespace {

using testing::expect_error;
using testing::GgufWriter;
using testing::ScratchFolder;

struct Described {
  Config config;
  std::vector<uint32_t> windows;
  double number(const char* name) const { return config.numbers.at(name); }
  const Rope& rope() const { return config.ropes.front(); }
};
Described described(const Weights& weights) {
  const auto family = family_for(weights);
  Config config = read_config(*family, weights);
  std::vector<uint32_t> windows = windows_of(*family, config);
  return {std::move(config), std::move(windows)};
}

Described from_json(const std::string& model_type, const std::string& more = "") {
  const ScratchFolder folder;
  folder.put("config.json", "{\"model_type\": \"" + model_type +
                                R"(", "num_hidden_layers": 2, "num_attention_heads": 16, "hidden_size": 512,
    "intermediate_size": 72, "vocab_size": 260)" +
                                more + "}");
  testing::SafetensorsWriter tensors;
  for (const char* name : {"x", "y"}) tensors.tensor(name, "F32", {1}, "1234");
  folder.put("model.safetensors", tensors.bytes());
  return described(*open_weights(folder.path().string()));
}

TEST(LlamaDefaults, OfConfigJson) {
  const Described c = from_json("llama");
  EXPECT_EQ(static_cast<float>(c.number("eps")), 1e-6F);
  EXPECT_EQ(c.config.info.kv_heads, 16u);
  EXPECT_EQ(c.config.info.head_dim, 32u);
  EXPECT_EQ(c.config.info.context, 2048u);
  EXPECT_FALSE(c.config.info.tied);
  EXPECT_EQ(c.rope().theta, 10000);
  EXPECT_EQ(c.rope().scaling, RopeScaling::kNone);
  EXPECT_EQ(c.rope().attention_factor, 1);
  EXPECT_EQ(c.number("attention_bias"), 0);
  EXPECT_EQ(c.number("mlp_bias"), 0);
  EXPECT_EQ(c.windows, (std::vector<uint32_t>{0, 0}));
}

TEST(LlamaDefaults, OfMistral) {
  const Described c = from_json("mistral");
  EXPECT_EQ(static_cast<float>(c.number("eps")), 1e-6F);
  EXPECT_EQ(c.config.info.kv_heads, 8u);
  EXPECT_EQ(c.config.info.context, 131072u);
  EXPECT_EQ(c.windows, (std::vector<uint32_t>{4096, 4096}));
  EXPECT_EQ(from_json("mistral", ", \"num_key_value_heads\": null").config.info.kv_heads, 16u);
  EXPECT_EQ(from_json("mistral", ", \"sliding_window\": null").windows, (std::vector<uint32_t>{0, 0}));
}

GgufWriter gguf() {
  return GgufWriter()
      .add("general.architecture", "llama")
      .add<uint32_t>("llama.block_count", 1)
      .add<uint32_t>("llama.attention.head_count", 4)
      .add<uint32_t>("llama.embedding_length", 64)
      .add<uint32_t>("llama.feed_forward_length", 72)
      .add<uint32_t>("llama.context_length", 4096);
}
Described from_gguf(GgufWriter writer) {
  const ScratchFolder folder;
  const std::string data(256, '\0');
  return described(*open_weights(folder.put("m.gguf", writer.tensor("token_embd.weight", 0, {1, 64}, data).bytes())));
}

TEST(LlamaDefaults, OfGguf) {
  const Described c = from_gguf(gguf().add<float>("llama.attention.layer_norm_rms_epsilon", 3e-5F));
  EXPECT_EQ(static_cast<float>(c.number("eps")), 3e-5F);
  EXPECT_EQ(c.config.info.kv_heads, 4u);
  EXPECT_EQ(c.config.info.head_dim, 16u);
  EXPECT_TRUE(c.config.info.tied);
  EXPECT_EQ(c.rope().theta, 10000);
  EXPECT_EQ(c.rope().rotated, 16u);
  EXPECT_EQ(c.rope().scaling, RopeScaling::kNone);
}

// Published files state it, and none of them means another one's.
TEST(LlamaDefaults, ThereIsNoEpsilonForGguf) {
  expect_error(ErrorCode::kModel, {"\"llama.attention.layer_norm_rms_epsilon\" is missing"}, [] { from_gguf(gguf()); });
}

}  // namespace
}  // namespace tenon::family
