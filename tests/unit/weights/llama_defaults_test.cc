// These tests look at what a description means that leaves a key out: the defaults of transformers' LlamaConfig and
// MistralConfig and of llama.cpp, as published numbers.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/llama/llama_config.h"
#include "support/weights_writer.h"

namespace tenon::llama {
namespace {

using testing::expect_error;
using testing::GgufWriter;
using testing::ScratchFolder;

Config from_json(const std::string& model_type, const std::string& more = "") {
  const ScratchFolder folder;
  folder.put("config.json", "{\"model_type\": \"" + model_type +
                                R"(", "num_hidden_layers": 2, "num_attention_heads": 16, "hidden_size": 512,
    "intermediate_size": 72, "vocab_size": 260)" +
                                more + "}");
  testing::SafetensorsWriter tensors;
  for (const char* name : {"x", "y"}) tensors.tensor(name, "F32", {1}, "1234");
  folder.put("model.safetensors", tensors.bytes());
  return read_config(*open_weights(folder.path().string()));
}

TEST(LlamaDefaults, OfConfigJson) {
  const Config c = from_json("llama");
  EXPECT_EQ(c.norm_epsilon, 1e-6F);
  EXPECT_EQ(c.info.kv_heads, 16u);
  EXPECT_EQ(c.info.head_dim, 32u);
  EXPECT_EQ(c.info.context, 2048u);
  EXPECT_FALSE(c.info.tied);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(c.rope.attention_factor, 1);
  EXPECT_FALSE(c.rope.interleaved);
  EXPECT_EQ(c.attention_bias, false);
  EXPECT_EQ(c.mlp_bias, false);
  EXPECT_EQ(c.windows, (std::vector<uint32_t>{0, 0}));
}

TEST(LlamaDefaults, OfMistral) {
  const Config c = from_json("mistral");
  EXPECT_EQ(c.norm_epsilon, 1e-6F);
  EXPECT_EQ(c.info.kv_heads, 8u);
  EXPECT_EQ(c.info.context, 131072u);
  EXPECT_EQ(c.windows, (std::vector<uint32_t>{4096, 4096}));
  EXPECT_EQ(from_json("mistral", ", \"num_key_value_heads\": null").info.kv_heads, 16u);
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
Config from_gguf(GgufWriter writer) {
  const ScratchFolder folder;
  const std::string data(256, '\0');
  return read_config(*open_weights(folder.put("m.gguf", writer.tensor("token_embd.weight", 0, {1, 64}, data).bytes())));
}

TEST(LlamaDefaults, OfGguf) {
  const Config c = from_gguf(gguf().add<float>("llama.attention.layer_norm_rms_epsilon", 3e-5F));
  EXPECT_EQ(c.norm_epsilon, 3e-5F);
  EXPECT_EQ(c.info.kv_heads, 4u);
  EXPECT_EQ(c.info.head_dim, 16u);
  EXPECT_TRUE(c.info.tied);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.rope.rotated, 16u);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kNone);
  EXPECT_TRUE(c.rope.interleaved);
}

// Published files state it, and none of them means another one's.
TEST(LlamaDefaults, ThereIsNoEpsilonForGguf) {
  expect_error(ErrorCode::kModel, {"\"llama.attention.layer_norm_rms_epsilon\" is missing"}, [] { from_gguf(gguf()); });
}

}  // namespace
}  // namespace tenon::llama
