// Models that cannot be run: each says what is wrong, where, and what would be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "support/weights_writer.h"
#include "tenon/core/engine.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

// A copy of a small checkpoint whose files can be edited.
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
  // In the header of the weights, whose length may change by it.
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
  std::string error() const {
    try {
      Engine::open({.config = model().string(), .set = {"kv_cache.capacity=64"}});
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
  EXPECT_THAT(error(), HasSubstr("architecture \"gpt_neox\" is not supported; supported: llama"));
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

TEST_F(BrokenModel, AllThatIsWrongWithTheConfigurationIsSaidAtOnce) {
  edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": -2");
  edit("config.json", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"");
  EXPECT_THAT(error(), HasSubstr("key \"num_hidden_layers\": found -2, expected a positive count"));
  EXPECT_THAT(error(), HasSubstr("hidden_act \"gelu\" is not supported"));
}

TEST_F(BrokenModel, HeadsThatCannotBeShared) {
  edit("config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3");
  EXPECT_THAT(error(), HasSubstr("4 query heads are no multiple of 3 KV heads"));
}

TEST_F(BrokenModel, AnUnknownRopeScaling) {
  edit("config.json", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"");
  EXPECT_THAT(error(), HasSubstr("rope scaling \"yarn\" is not supported; supported: linear, llama3"));
}

TEST(GgufModel, MissingMetadataIsNamed) {
  const tenon::testing::ScratchFolder folder;
  tenon::testing::GgufWriter gguf;
  gguf.add("general.architecture", "llama").add("llama.block_count", uint32_t{1});
  const std::string path = folder.put("m.gguf", gguf.bytes());
  try {
    const auto weights = open_weights(path);
    model_kind_for(*weights).describe(*weights);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(path));
    EXPECT_THAT(e.what(), HasSubstr("key \"llama.embedding_length\" is missing"));
    EXPECT_THAT(e.what(), HasSubstr("tensor \"token_embd.weight\" is missing"));
  }
}

}  // namespace
}  // namespace tenon
