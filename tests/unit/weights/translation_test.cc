// Llamas go between Hugging Face and GGUF: tensors and description.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "expect_error.h"
#include "model/family/family_config.h"
#include "support/weights_writer.h"
#include "tenon/core/module.h"
#include "tenon/core/weights.h"

namespace tenon {
namespace {

using testing::expect_error;
using testing::ScratchFolder;

std::string golden(const std::string& name) {
  return std::string(TENON_SOURCE_DIR) + "/tests/golden/data/" + name;
}

std::string bytes_of_tensor(const Weights& model, const WeightTensor& t) {
  std::string bytes(t.bytes, '\0');
  model.read(t, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void expect_same_tensors(const Weights& made, const Weights& expected) {
  EXPECT_EQ(made.tensors().size(), expected.tensors().size());
  for (const WeightTensor& t : expected.tensors()) {
    const WeightTensor* found = made.find(t.name);
    ASSERT_NE(found, nullptr) << t.name;
    EXPECT_EQ(found->shape, t.shape) << t.name;
    EXPECT_EQ(found->format, t.format) << t.name;
    EXPECT_TRUE(bytes_of_tensor(made, *found) == bytes_of_tensor(expected, t)) << t.name;
  }
}

// The same model is in both forms; gguf-py wrote the GGUF file.
TEST(Translation, GivesTheTensorsOfTheOtherForm) {
  const auto folder = open_weights(golden("tiny-gqa-untied")), file = open_weights(golden("tiny-gqa-untied.gguf"));
  const Translation to_gguf = model_kind_for(*folder)->translate(*folder, {});
  EXPECT_EQ(to_gguf.weights->convention(), "gguf");
  expect_same_tensors(*to_gguf.weights, *file);
  for (const std::string& key : file->metadata_keys()) {
    if (!key.starts_with("llama.")) continue;
    ASSERT_NE(to_gguf.weights->metadata(key), nullptr) << key;
    EXPECT_EQ(metadata_real(*to_gguf.weights, key), metadata_real(*file, key)) << key;
  }
  const Translation to_folder = model_kind_for(*file)->translate(*file, {});
  EXPECT_EQ(to_folder.weights->convention(), "huggingface");
  expect_same_tensors(*to_folder.weights, *folder);
  const ModelInfo made = model_kind_for(*to_folder.weights)->describe(*to_folder.weights),
                  expected = model_kind_for(*folder)->describe(*folder);
  EXPECT_EQ(std::tuple(made.layers, made.heads, made.kv_heads, made.width, made.ffn, made.vocab, made.context,
                       made.head_dim, made.tied),
            std::tuple(expected.layers, expected.heads, expected.kv_heads, expected.width, expected.ffn, expected.vocab,
                       expected.context, expected.head_dim, expected.tied));
}

TEST(Translation, ThereAndBackIsTheSame) {
  for (const char* name : {"tiny-mha-tied", "tiny-odd", "tiny-linear-scaling"}) {
    const auto folder = open_weights(golden(name));
    const Translation there = model_kind_for(*folder)->translate(*folder, {});
    const Translation back = model_kind_for(*there.weights)->translate(*there.weights, {});
    expect_same_tensors(*back.weights, *folder);
  }
}

family::Rope rope_of(const Weights& model) {
  return family::read_config(*family::family_for(model), model).ropes.front();
}

void expect_same_rope(const Weights& made, const family::Rope& expected) {
  const family::Rope found = rope_of(made);
  for (const uint32_t positions : {1U, 64U, 65U, 512U}) {
    const std::vector<double> f = family::frequencies(found, positions),
                              want = family::frequencies(expected, positions);
    ASSERT_EQ(f.size(), want.size());
    for (size_t i = 0; i < f.size(); ++i) EXPECT_NEAR(f[i] / want[i], 1, 1e-6) << "pair " << i << " of " << positions;
  }
  EXPECT_NEAR(found.attention_factor, expected.attention_factor, 1e-6);
}

TEST(Translation, KeepsTheFrequenciesOfScaledRope) {
  const ScratchFolder scratch;
  std::filesystem::copy(golden("tiny-gqa-untied"), scratch.path(), std::filesystem::copy_options::recursive);
  std::ifstream in(golden("tiny-gqa-untied/config.json"));
  const std::string config(std::istreambuf_iterator<char>(in), {}), plain = R"("rope_type": "default")";
  ASSERT_NE(config.find(plain), std::string::npos);
  for (const char* rope :
       {R"("rope_type": "linear", "factor": 2.5)",
        R"("rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
           "original_max_position_embeddings": 64)",
        R"("rope_type": "yarn", "factor": 8, "beta_fast": 16, "beta_slow": 0.5, "attention_factor": 0.75,
           "original_max_position_embeddings": 64)",
        R"("rope_type": "longrope", "original_max_position_embeddings": 64,
           "short_factor": [1, 1, 1, 1, 1.5, 1.5, 2, 2], "long_factor": [1, 1.5, 2, 2.5, 3, 4, 5, 6.5])"}) {
    scratch.put("config.json", std::string(config).replace(config.find(plain), plain.size(), rope));
    const auto folder = open_weights(scratch.path().string());
    const family::Rope expected = rope_of(*folder);
    const Translation there = model_kind_for(*folder)->translate(*folder, {});
    expect_same_rope(*there.weights, expected);
    const Translation back = model_kind_for(*there.weights)->translate(*there.weights, {});
    expect_same_rope(*back.weights, expected);
    // The library transformers looks at no tensor of frequencies.
    EXPECT_EQ(back.weights->tensors().size(), folder->tensors().size()) << rope;
  }
}

// The ramp of gpt-oss begins between pairs, which is not what transformers takes where nothing is said.
TEST(Translation, SaysWhetherYarnIsCutToPairs) {
  const auto file = open_weights(golden("tiny-gpt-oss/tiny-gpt-oss.gguf")),
             folder = open_weights(golden("tiny-gpt-oss"));
  const Translation made = model_kind_for(*file)->translate(*file, {});
  expect_same_rope(*made.weights, rope_of(*folder));
  ASSERT_NE(made.weights->metadata("rope_scaling.truncate"), nullptr);
  EXPECT_EQ(*made.weights->metadata("rope_scaling.truncate"), MetadataValue(false));
}

TEST(Translation, ReadsAnyPartOfReorderedRows) {
  const auto folder = open_weights(golden("tiny-gqa-untied"));
  const Translation made = model_kind_for(*folder)->translate(*folder, {});
  const WeightTensor& q = *made.weights->find("blk.0.attn_q.weight");
  const std::string whole = bytes_of_tensor(*made.weights, q);
  std::string pieces(q.bytes, '\0');
  for (uint64_t at = 0; at < q.bytes; at += 100) {
    const uint64_t n = std::min<uint64_t>(100, q.bytes - at);
    made.weights->read(q, at, std::as_writable_bytes(std::span(pieces)).subspan(at, n));
  }
  EXPECT_TRUE(pieces == whole);
}

TEST(Translation, NamesWhatHasNoCounterpart) {
  const ScratchFolder scratch;
  const auto refused = [&](const std::string& extra, const std::string& tensor, const std::vector<std::string>& parts) {
    scratch.put(
        "config.json",
        R"({"model_type":"mistral","num_hidden_layers":1,"num_attention_heads":1,"num_key_value_heads":1,"hidden_size":4,)"
        R"("intermediate_size":4,"vocab_size":4,"max_position_embeddings":64)" +
            extra + "}");
    scratch.put("model.safetensors",
                testing::SafetensorsWriter().tensor(tensor, "F32", {1}, std::string(4, '\0')).bytes());
    const auto model = open_weights(scratch.path().string());
    expect_error(ErrorCode::kModel, parts, [&] { model_kind_for(*model)->translate(*model, {}); });
  };
  refused("", "model.layers.0.self_attn.q_norm.weight", {"q_norm", "no counterpart", "GGUF"});
  refused(R"(,"sliding_window":32)", "model.norm.weight", {"sliding_window 32"});
  refused(R"(,"sliding_window":32,"layer_types":["sliding_attention"])", "model.norm.weight", {"sliding_window 32"});
  refused(R"(,"rope_scaling":{"type":"dynamic","factor":2})", "model.norm.weight",
          {"rope of type \"dynamic\" cannot be said in GGUF, whose types are none, linear, yarn and longrope"});
  refused(R"(,"rope_scaling":{"type":"yarn","factor":2,"truncate":false})", "model.norm.weight",
          {"rope of type \"yarn\" with truncate = false cannot be said in GGUF"});
  refused("", "model.layers.0.self_attn.q_proj.weight", {"1 heads of 4 rows"});
}

}  // namespace
}  // namespace tenon
