// Of models that cannot be run, each says what is wrong, where, and what would be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "core/model/family/family_model.h"
#include "support/weights_writer.h"
#include "tenon/core/engine.h"
#include "tenon/core/module.h"
#include "tenon/core/pipeline.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

// Takes what a model declares and keeps the values of its rope.
class TableOnly : public Declarations {
 public:
  std::vector<float> table_values;
  LinearId linear(LinearDecl) override { return 0; }
  JoinedId joined(JoinedDecl) override { return 0; }
  VectorId vector(std::string, std::vector<const WeightTensor*>, int64_t) override { return 0; }
  void add_to(VectorId, float) override {}
  VectorId table(std::string, int64_t rows, int64_t columns, std::function<void(std::span<float>)> fill) override {
    table_values.resize(static_cast<size_t>(rows * columns));
    fill(table_values);
    return 0;
  }
  LayerId attention(AttentionDecl) override { return 0; }
  RowOpsId row_ops(RowOpsDecl) override { return 0; }
  uint32_t capacity() const override { return 50; }
  LayerRange layer_range(uint32_t all) const override { return {0, all}; }
  void uses(const WeightTensor&) override {}
  void refuse(std::string what) override { ADD_FAILURE() << what; }
};

std::vector<uint32_t> windows_of(const Weights& weights) {
  const auto found = family::family_for(weights);
  return family::windows_of(*found, family::read_config(*found, weights));
}

// This is a copy of a small checkpoint whose files can be edited.
class BrokenModel : public ::testing::Test {
 protected:
  BrokenModel() {
    std::filesystem::copy(std::filesystem::path(TENON_SOURCE_DIR) / "tests/golden/data/tiny-gqa-untied", model(),
                          std::filesystem::copy_options::recursive);
  }
  std::filesystem::path model() const { return folder_.path() / "model"; }

  void edit(const std::string& file, const std::string& from, const std::string& to) {
    std::ifstream in(model() / file, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(in), {});
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << file << " has no " << from;
    text.replace(at, from.size(), to);
    tenon::testing::write_file(model() / file, text);
  }
  // Replaces text in the header of the weights, whose length may change by it.
  void edit_header(const std::string& from, const std::string& to) {
    std::ifstream in(model() / "model.safetensors", std::ios::binary);
    const std::string file(std::istreambuf_iterator<char>(in), {});
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    std::string header = file.substr(sizeof(length), length);
    const size_t at = header.find(from);
    ASSERT_NE(at, std::string::npos) << header << " has no " << from;
    header.replace(at, from.size(), to);
    tenon::testing::write_file(model() / "model.safetensors",
                               tenon::testing::SafetensorsWriter::file(header, file.substr(sizeof(length) + length)));
  }
  std::string error(std::vector<std::string> set = {}) const {
    try {
      set.insert(set.begin(), "kv_cache.capacity=64");
      Engine::open({.config = model().string(), .set = set});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kModel);
      return e.what();
    }
    return "no error";
  }

  tenon::testing::ScratchFolder folder_;
};

TEST_F(BrokenModel, AnotherArchitectureIsNamedAndWhatIsThereListed) {
  edit("config.json", "\"model_type\": \"llama\"", "\"model_type\": \"gpt_neox\"");
  EXPECT_THAT(error(), HasSubstr("architecture \"gpt_neox\" is not supported; supported: "));
}

TEST_F(BrokenModel, AMissingTensorIsNamed) {
  edit("model.safetensors", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.op_proj.weight");
  EXPECT_THAT(error(), HasSubstr("tensor \"model.layers.1.mlp.up_proj.weight\" is missing"));
}

TEST_F(BrokenModel, AWrongShapeIsNamedBesideTheRightOne) {
  edit("config.json", "\"intermediate_size\": 72", "\"intermediate_size\": 73");
  EXPECT_THAT(error(), HasSubstr("is f32 (72, 64), expected the shape (73, 64)"));
}

TEST_F(BrokenModel, EveryTensorOfTheWrongLengthRankOrFormatIsNamedAtOnce) {
  edit_header(R"("model.norm.weight":{"dtype":"F32","shape":[64])",
              R"("model.norm.weight":{"dtype":"I32","shape":[64])");
  edit_header(R"("model.layers.0.input_layernorm.weight":{"dtype":"F32","shape":[64])",
              R"("model.layers.0.input_layernorm.weight":{"dtype":"F16","shape":[128])");
  edit_header(R"("model.layers.1.input_layernorm.weight":{"dtype":"F32","shape":[64])",
              R"("model.layers.1.input_layernorm.weight":{"dtype":"F32","shape":[8,8])");
  edit_header("model.layers.1.post_attention_layernorm.weight", "model.layers.1.post_attention_layernorm.wait");
  const std::string found = error();
  EXPECT_THAT(found,
              HasSubstr("model.safetensors: error: tensor \"model.norm.weight\" is i32 (64), expected f32, f16 or "
                        "bf16 (64)"));
  EXPECT_THAT(found,
              HasSubstr("\"model.layers.0.input_layernorm.weight\" is f16 (128), expected f32, f16 or bf16 (64)"));
  EXPECT_THAT(found,
              HasSubstr("\"model.layers.1.input_layernorm.weight\" is f32 (8, 8), expected f32, f16 or bf16 (64)"));
  EXPECT_THAT(found, HasSubstr("tensor \"model.layers.1.post_attention_layernorm.weight\" is missing"));
}

TEST_F(BrokenModel, EveryKeyAndTensorThatNobodyReadsIsNamedAtOnce) {
  edit("config.json", "\"hidden_act\"", R"("rope_interleavd": 5, "query_pre_attn_scalar": 144, "hidden_act")");
  edit_header("\"__metadata__\"",
              R"("model.layers.1.self_attn.q_norm.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
              R"("model.layers.2.mlp.up_proj.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
              R"("base.lora_A.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"__metadata__")");
  const std::string found = error();
  EXPECT_THAT(
      found,
      HasSubstr(
          "config.json: error: key \"rope_interleavd\", found 5: the model does not read it, so it may change what is "
          "computed; did you mean \"rope_interleaved\"?"));
  EXPECT_THAT(found, HasSubstr("key \"query_pre_attn_scalar\", found 144"));
  EXPECT_THAT(found,
              HasSubstr("model.safetensors: error: tensor \"model.layers.1.self_attn.q_norm.weight\" is f32 (0): "
                        "the model computes nothing with it"));
  EXPECT_THAT(found, HasSubstr("tensor \"model.layers.2.mlp.up_proj.weight\" is f32 (0): the model computes nothing"));
  EXPECT_THAT(found, HasSubstr("tensor \"base.lora_A.weight\" is f32 (0): an adapter is not applied"));
}

TEST_F(BrokenModel, KeysThatAreNamedOneByOneMayBeThere) {
  edit("config.json", "\"hidden_act\"",
       R"("auto_map": {"AutoConfig": "x.Config", "AutoModel": "x.Model"}, "my_tool": 3, "hidden_act")");
  EXPECT_THAT(error(), ::testing::AllOf(HasSubstr("key \"auto_map.AutoConfig\""), HasSubstr("key \"my_tool\""),
                                        HasSubstr("model.ignore_unknown = [\"my_tool\"] lets it be there")));
  const auto with = [&](const std::string& keys) { return error({"model.ignore_unknown=" + keys}); };
  EXPECT_EQ(with(R"(["auto_map", "my_tool"])"), "no error");
  EXPECT_THAT(with(R"(["auto_map"])"), HasSubstr("key \"my_tool\""));
  EXPECT_THAT(with(R"(["auto_map", "my_tool", "hidden_act"])"),
              HasSubstr("model.ignore_unknown names \"hidden_act\", which is known, and is not ignored"));
  EXPECT_THAT(with(R"(["auto_map", "my_tool", "my_tol"])"),
              HasSubstr("model.ignore_unknown names \"my_tol\", and there is no such key"));
}

TEST_F(BrokenModel, AQuantizationThatNobodyReadsIsRefused) {
  edit("config.json", "\"hidden_act\"", R"("quantization_config": {"quant_method": "gptq"}, "hidden_act")");
  EXPECT_THAT(error(), HasSubstr("every matrix is stored plainly, so nothing reads it"));
}

TEST_F(BrokenModel, BiasesAreThoseOfTheDescription) {
  edit("config.json", "\"attention_bias\": false", "\"attention_bias\": true");
  EXPECT_THAT(error(), HasSubstr("tensor \"model.layers.1.self_attn.o_proj.bias\" is missing"));
  edit("config.json", "\"attention_bias\": true", "\"attention_bias\": false");
  edit_header("\"__metadata__\"",
              R"("model.layers.1.mlp.up_proj.bias":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"__metadata__")");
  EXPECT_THAT(error(), HasSubstr("tensor \"model.layers.1.mlp.up_proj.bias\" is f32 (0): the model computes nothing"));
}

TEST_F(BrokenModel, AHeadBesideATiedOneIsRefusedUnlessItIsTheSame) {
  edit("config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_THAT(error(), HasSubstr("\"lm_head.weight\" is not the same as \"model.embed_tokens.weight\""));
  std::ifstream in(model() / "model.safetensors", std::ios::binary);
  std::string file(std::istreambuf_iterator<char>(in), {});
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const size_t head = sizeof(header) + header, bytes = size_t{260} * 64 * sizeof(float);
  file.replace(head, bytes, file, head + bytes, bytes);  // the embedding stands after the head
  tenon::testing::write_file(model() / "model.safetensors", file);
  EXPECT_EQ(error(), "no error");
}

TEST_F(BrokenModel, AnotherHeadThanForTextIsRefused) {
  edit("config.json", "LlamaForCausalLM", "LlamaForCausalLMEagle3");
  EXPECT_THAT(error(), HasSubstr("key \"architectures\": found"));
}

TEST_F(BrokenModel, LayersThatAreNotWantedMayBeThere) {
  const auto engine = Engine::open({.config = model().string(), .set = {"kv_cache.capacity=64", "model.layers=1"}});
  EXPECT_EQ(engine->pipeline().model().layers, 1U);
}

TEST_F(BrokenModel, AllThatIsWrongWithTheConfigurationIsSaidAtOnce) {
  edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": -2");
  edit("config.json", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"");
  EXPECT_THAT(error(), HasSubstr("key \"num_hidden_layers\": found -2, expected a positive count"));
  EXPECT_THAT(
      error(),
      HasSubstr("key \"hidden_act\": found the text \"gelu\", which is not supported; supported: the text \"silu\""));
}

TEST_F(BrokenModel, HeadsThatCannotBeShared) {
  edit("config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3");
  EXPECT_THAT(error(), HasSubstr("4 query heads are no multiple of 3 KV heads"));
}

TEST_F(BrokenModel, AnUnknownRopeScaling) {
  edit("config.json", "\"rope_type\": \"default\"", "\"rope_type\": \"ntk\"");
  EXPECT_THAT(error(), HasSubstr("rope scaling \"ntk\" is not supported; supported: linear, dynamic, yarn"));
}

TEST_F(BrokenModel, AWindowOfMistralIsTheDefaultUnlessItIsNull) {
  edit("config.json", "\"model_type\": \"llama\"", "\"model_type\": \"mistral\"");
  edit("config.json", "LlamaForCausalLM", "MistralForCausalLM");
  const auto window = [&] {
    const auto weights = open_weights(model().string());
    return windows_of(*weights).back();
  };
  EXPECT_EQ(window(), 4096U);
  edit("config.json", "\"model_type\"", "\"sliding_window\": null, \"model_type\"");
  EXPECT_EQ(window(), 0U);
  edit("config.json", "\"sliding_window\": null", "\"sliding_window\": 512");
  EXPECT_EQ(window(), 512U);
  edit("config.json", "\"sliding_window\": 512", "\"sliding_window\": -1");
  EXPECT_THAT(error(), HasSubstr("key \"sliding_window\": found -1, expected a positive count below 2^31"));
  edit("config.json", "\"sliding_window\": -1", "\"sliding_window\": 4294967297");
  EXPECT_THAT(error(), HasSubstr("key \"sliding_window\": found 4294967297, expected a positive count below 2^31"));
}

TEST_F(BrokenModel, LayerTypesTakeTheWindowOfMistralFromSomeLayers) {
  edit("config.json", "\"model_type\": \"llama\"",
       R"("model_type": "mistral", "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"])");
  edit("config.json", "LlamaForCausalLM", "MistralForCausalLM");
  const auto weights = open_weights(model().string());
  EXPECT_THAT(windows_of(*weights), ::testing::ElementsAre(0U, 9U));
  edit("config.json", "\"full_attention\", ", "");
  EXPECT_THAT(error(),
              HasSubstr("key \"layer_types\": found a list of \"sliding_attention\", expected a list of 2 texts"));
  edit("config.json", "[\"sliding_attention\"]", "[\"chunked_attention\", \"sliding_attention\"]");
  EXPECT_THAT(error(), HasSubstr("key \"layer_types\": found \"chunked_attention\", expected \"full_attention\" or"));
  edit("config.json", "\"chunked_attention\"", "\"sliding_attention\"");
  edit("config.json", "\"sliding_window\": 9", "\"sliding_window\": null");
  EXPECT_THAT(error(), HasSubstr("or \"sliding_attention\" (if window > 0)"));
}

TEST_F(BrokenModel, LayersOfALlamaSeeEverything) {
  edit("config.json", "\"model_type\"", R"("layer_types": ["full_attention", "full_attention"], "model_type")");
  EXPECT_EQ(error(), "no error");
  edit("config.json", "\"full_attention\"]", "\"sliding_attention\"]");
  EXPECT_THAT(error(), HasSubstr("key \"layer_types\": found \"sliding_attention\", expected \"full_attention\""));
}

// Transformers' Mistral looks at no such keys, and drops the tensors.
TEST_F(BrokenModel, MistralHasNoBiases) {
  edit("config.json", "\"model_type\": \"llama\"", "\"model_type\": \"mistral\"");
  edit("config.json", "LlamaForCausalLM", "MistralForCausalLM");
  edit("config.json", "\"attention_bias\": false", "\"attention_bias\": true");
  edit("config.json", "\"mlp_bias\": false", "\"mlp_bias\": true");
  EXPECT_THAT(error(), HasSubstr("key \"attention_bias\": found true, expected false"));
  EXPECT_THAT(error(), HasSubstr("key \"mlp_bias\": found true, expected false"));
}

TEST_F(BrokenModel, WhatTransformersReadsAsNullIsNotTheDefault) {
  edit("config.json", "\"model_type\"", R"("is_causal": null, "model_type")");
  EXPECT_THAT(error(), HasSubstr("key \"is_causal\": found null"));
  edit("config.json", "\"is_causal\": null", "\"is_causal\": {}");
  EXPECT_THAT(error(), HasSubstr("key \"is_causal\": found an empty list or group, expected true"));
  edit("config.json", R"("is_causal": {}, "model_type")", "\"model_type\"");
  edit("config.json", "\"head_dim\": 16", "\"head_dim\": {}");
  EXPECT_THAT(error(), HasSubstr("\"head_dim\" is an empty list or group; expected an integer"));
  edit("config.json", "\"head_dim\": {}", "\"head_dim\": null");
  edit("config.json", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": null");
  EXPECT_THAT(error(), HasSubstr("key \"rms_norm_eps\": found null, expected a value, or no such key"));
}

// One thing is wrong, and nothing else is said that would follow from a number that is not there.
TEST_F(BrokenModel, NumbersOfAnotherTypeAreNamedAlone) {
  const auto errors_of = [&](const std::string& value) {
    edit("config.json", "\"head_dim\": 16", "\"head_dim\": " + value);
    const std::string found = error();
    edit("config.json", "\"head_dim\": " + value, "\"head_dim\": 16");
    EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 0) << found;
    return found;
  };
  EXPECT_THAT(errors_of("\"x\""), HasSubstr("\"head_dim\" is the text \"x\"; expected an integer"));
  EXPECT_THAT(errors_of("[16]"), HasSubstr("\"head_dim\" is a list of 1 integers; expected an integer"));
  EXPECT_THAT(errors_of("true"), HasSubstr("\"head_dim\" is true; expected an integer"));
  EXPECT_THAT(errors_of("16.5"), HasSubstr("\"head_dim\" is the number 16.5; expected an integer"));
  EXPECT_THAT(errors_of("{\"a\": 16}"), HasSubstr("key \"head_dim\": found an object, expected a number"));
  edit("config.json", "\"model_type\"", R"("rope_theta": "x", "model_type")");
  EXPECT_THAT(error(), HasSubstr("\"rope_theta\" is the text \"x\"; expected a number"));
  EXPECT_THAT(error(), ::testing::Not(HasSubstr("expected one value")));
}

TEST_F(BrokenModel, AHeadOfAnAbsurdSizeIsRefusedAtOnce) {
  edit("config.json", "\"head_dim\": 16", "\"head_dim\": 2147483646");
  EXPECT_THAT(error(), HasSubstr("key \"head_dim\": found 2147483646, expected at most 65536"));
}

TEST_F(BrokenModel, MoreLayersThanTensorsAreRefusedAtOnce) {
  edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2147483647");
  EXPECT_THAT(error(), HasSubstr("key \"num_hidden_layers\": found 2147483647, expected no more layers than the 21"));
}

TEST_F(BrokenModel, ALlamaHasNoWindow) {
  edit("config.json", "\"model_type\"", "\"sliding_window\": 512, \"model_type\"");
  EXPECT_THAT(error(), HasSubstr("key \"sliding_window\", found 512: the model does not read it"));
}

TEST_F(BrokenModel, TheAttentionFactorOfYarnScalesCosinesAndSines) {
  const auto table = [&] {
    const auto weights = open_weights(model().string());
    TableOnly declared;
    model_kind_for(*weights)->build(*weights, declared);
    return declared.table_values;
  };
  const std::vector<float> plain = table();
  edit("config.json", "\"rope_type\": \"default\"", R"("rope_type": "yarn", "factor": 1, "attention_factor": 0.5)");
  const std::vector<float> scaled = table();
  ASSERT_EQ(scaled.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] * 0.5F) << i;
}

TEST_F(BrokenModel, TheLengthThatRopeIsScaledForIsSaid) {
  const auto said = [&](const std::string& capacity) {
    const auto engine = Engine::open({.config = model().string(), .set = {"kv_cache.capacity=" + capacity}});
    std::string found;
    for (const Decision& d : engine->pipeline().decisions()) {
      if (d.path == "rope") found += d.text;
    }
    return found;
  };
  EXPECT_EQ(said("512"), "");
  edit("config.json", "\"rope_type\": \"default\"", R"("rope_type": "dynamic", "factor": 2)");
  EXPECT_EQ(said("512"), "dynamic, for texts of kv_cache.capacity = 512 tokens, within the context of 512: not scaled");
  EXPECT_THAT(said("513"), HasSubstr("beyond the context of 512: theta is larger"));
  edit("config.json", "\"rope_type\": \"dynamic\", \"factor\": 2",
       R"("rope_type": "longrope", "original_max_position_embeddings": 64, "short_factor": [1,1,1,1,1,1,1,1],
          "long_factor": [2,2,2,2,2,2,2,2])");
  EXPECT_THAT(said("64"), HasSubstr("within the first context of 64: short_factor"));
  EXPECT_THAT(said("65"), HasSubstr("beyond the first context of 64: long_factor"));
}

TEST_F(BrokenModel, ATokenWithoutARowOfTheEmbeddingIsRefused) {
  edit("tokenizer.json", "\"added_tokens\": [",
       R"("added_tokens": [{"id": 260, "content": "<pad>", "single_word": false, "lstrip": false, "rstrip": false,
                           "normalized": false, "special": true},)");
  EXPECT_THAT(error(), HasSubstr("the tokenizer has 261 tokens and the embedding 260 rows; expected a row for every"));
}

TEST(GgufModel, WhatTheDescriptionSaysOtherwiseThanTheTensorsIsRefused) {
  const tenon::testing::ScratchFolder folder;
  tenon::testing::GgufWriter gguf;
  gguf.add("general.architecture", "llama").add("general.type", "adapter").add("llama.block_count", uint32_t{1});
  gguf.add("llama.attention.head_count", uint32_t{1}).add("llama.embedding_length", uint32_t{4});
  gguf.add("llama.feed_forward_length", uint32_t{4}).add("llama.context_length", uint32_t{64});
  gguf.add("llama.vocab_size", uint32_t{3}).add("llama.attention.value_length", uint32_t{8});
  gguf.add("llama.expert_used_count", uint32_t{2});
  gguf.tensor("token_embd.weight", 0, {2, 4}, std::string(32, '\0'));
  const auto weights = open_weights(folder.put("m.gguf", gguf.bytes()));
  try {
    model_kind_for(*weights)->describe(*weights);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("key \"general.type\": found the text \"adapter\", expected the text \"model\""));
    EXPECT_THAT(e.what(), HasSubstr("key \"llama.vocab_size\": found 3, expected 2"));
    EXPECT_THAT(e.what(), HasSubstr("key \"llama.attention.value_length\": found 8, expected 4"));
    EXPECT_THAT(e.what(), HasSubstr("key \"llama.expert_used_count\": found 2, expected 0"));
  }
}

TEST(GgufModel, MissingMetadataIsNamed) {
  const tenon::testing::ScratchFolder folder;
  tenon::testing::GgufWriter gguf;
  gguf.add("general.architecture", "llama").add("llama.block_count", uint32_t{1});
  const std::string path = folder.put("m.gguf", gguf.bytes());
  try {
    const auto weights = open_weights(path);
    model_kind_for(*weights)->describe(*weights);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(path));
    EXPECT_THAT(e.what(), HasSubstr("key \"llama.embedding_length\" is missing"));
    EXPECT_THAT(e.what(), HasSubstr("tensor \"token_embd.weight\" is missing"));
  }
}

}  // namespace
}  // namespace tenon
