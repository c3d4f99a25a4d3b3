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
  EXPECT_THAT(error(), HasSubstr("has the shape (72, "));
  EXPECT_THAT(error(), HasSubstr("expected (73, "));
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
