// Model families are files: this tests what is wrong with one, how one from outside the tree is found, and that models
// of every shipped one survive the way to GGUF and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "expect_error.h"
#include "model/family/family_config.h"
#include "model/family/family_model.h"
#include "support/weights_writer.h"
#include "tenon/core/module.h"

namespace tenon::family {
namespace {

using ::testing::AllOf;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::ScratchFolder;
namespace fs = std::filesystem;

const fs::path kModels = fs::path(TENON_SOURCE_DIR) / "configs/models";
const fs::path kGolden = fs::path(TENON_SOURCE_DIR) / "tests/golden/data";

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// This is the shipped family of Llama with one text in the place of another.
class EditedFamily {
 public:
  EditedFamily& edit(const std::string& from, const std::string& to) {
    const size_t at = text_.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text_.replace(at, from.size(), to);
    return *this;
  }
  std::string error() const {
    try {
      read_family(folder_.put("llama.toml", text_));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kConfig);
      return e.what();
    }
    return "no error";
  }
  fs::path folder() const { return folder_.path(); }
  void write(const std::string& name) const { folder_.put(name, text_); }

 private:
  ScratchFolder folder_;
  std::string text_ = text_of(kModels / "llama.toml");
};

TEST(FamilyFile, EveryMistakeIsNamedAtOnceWithItsPlace) {
  EditedFamily f;
  f.edit("class  =", "clas   =");
  f.edit("default = \"heads\"", "default = \"haeds\"");
  f.edit("type = \"real\"", "type = \"reel\"");
  f.edit("weight = \"mlp_norm\"", "weight = \"mlp.nrm\"");
  f.edit("rope   = \"plain\"", "rope   = \"plane\"");
  f.edit("use    = \"mlp\"", "use    = \"mpl\"");
  f.edit("vocab    =", "vocabulary =");
  const std::string found = f.error();
  EXPECT_THAT(found, HasSubstr("llama.toml:6:1: error: model: unknown key \"clas\"; did you mean \"class\"?"));
  EXPECT_THAT(found, HasSubstr("model: key \"class\" is missing"));
  EXPECT_THAT(found, HasSubstr("llama.toml:15:"));
  EXPECT_THAT(found, HasSubstr("formula \"haeds\": there is no \"haeds\"; did you mean \"heads\"?"));
  EXPECT_THAT(found, HasSubstr("found the string \"reel\", expected \"count\", \"real\" or \"bool\""));
  EXPECT_THAT(found, HasSubstr("expected one of \"plain\""));
  EXPECT_THAT(found, HasSubstr("found the string \"mpl\", expected \"attention\", \"mlp\" or \"experts\""));
  EXPECT_THAT(found, HasSubstr("numbers: key \"vocab\" is missing"));
}

TEST(FamilyFile, AFormulaThatCannotBeComputedIsPointedInto) {
  EditedFamily f;
  f.edit("default = \"width / heads\"", "default = \"width / (heads\"");
  EXPECT_THAT(f.error(), HasSubstr("formula \"width / (heads\": "));
  EXPECT_THAT(EditedFamily().edit("default = \"heads\"", "default = \"heads, 2\"").error(),
              HasSubstr("expected one value"));
  EXPECT_THAT(EditedFamily().edit("default = \"heads\"", "default = \"heads = 2\"").error(),
              HasSubstr("llama.toml:15:"));
}

TEST(Formulas, OfCountsGiveWholeNumbers) {
  Scope scope;
  scope.set("window", 24);
  EXPECT_EQ(scope.count({"window * 2 - .5e1", {}}), 43U);
  for (const char* wrong : {"-window", "window / 5", "window * 1e9", "0 / 0"}) {
    expect_error(ErrorCode::kConfig, {"made.toml:3:5", wrong, "expected a whole number from 0 to 2147483647"}, [&] {
      scope.count({wrong, {"made.toml", 3, 5}});
    });
  }
}

TEST(FamilyFile, NamesOfTensorsAreChecked) {
  EXPECT_THAT(EditedFamily().edit("weight = \"norm\"", "weight = \"nor.m\"").error(),
              HasSubstr("there is no tensor \"nor.m\"; did you mean \"norm\"?"));
  EXPECT_THAT(EditedFamily().edit("blk.*.attn_q\"", "blk.attn_q\"").error(),
              HasSubstr("the name of a layer's tensor has a \"*\" for the layer's number"));
  EXPECT_THAT(EditedFamily().edit("\"layers.*.mlp.up\"", "\"layers.*.mlp.op\"").error(),
              HasSubstr("needs the tensor \"layers.*.mlp.up\", which [tensors] does not have"));
  EXPECT_THAT(EditedFamily().edit("name   = \"llama\"", "name   = \"lama\"").error(),
              HasSubstr("found the name \"lama\" in a file that is called after another, \"llama.toml\""));
}

TEST(FamilyFile, ExpertsNeedTheirNumbersAndTensors) {
  EditedFamily f;
  f.edit("use    = \"mlp\"", "use    = \"experts\"");
  f.edit("bias   = { huggingface = \"mlp_bias\", gguf = \"stored\" }\n", "count  = \"heads\"\ninner = \"ffn\"\n");
  f.edit("\"layers.*.mlp.gate\"       = { huggingface = \"model.layers.*.mlp.gate_proj\"",
         "\"layers.*.experts.*.gate\" = { huggingface = \"model.layers.*.mlp.gate_proj\"");
  const std::string found = f.error();
  EXPECT_THAT(found, HasSubstr("layer.block: key \"chosen\" is missing"));
  EXPECT_THAT(found, HasSubstr("layer.block: key \"renormalised\" is missing"));
  EXPECT_THAT(found, HasSubstr("each \"*\" of the name, for a layer's number and for an expert's, stands here, too"));
  EXPECT_THAT(found, HasSubstr("needs the tensor \"layers.*.experts.router\", which [tensors] does not have"));
  EXPECT_THAT(found, HasSubstr("needs the tensor \"layers.*.experts.*.down\", which [tensors] does not have"));
}

TEST(FamilyFile, StackedTensorsNeedTheNamesOfTheirParts) {
  EditedFamily f;
  f.edit("[rope.plain]", R"([stacked.huggingface."model.layers.*.mlp.experts.gate_up_proj"]
parts = ["gate", "up"]
tensors = { "" = "weight", "_bias" = 1 }
transposed = ["wait"]
[stacked.huggingface."model.down_proj"]
[rope.plain])");
  const std::string found = f.error();
  EXPECT_THAT(found,
              HasSubstr("needs a tensor called \"model.layers.*.mlp.experts.gate_up_proj.*.up\", which [tensors] "
                        "does not have"));
  EXPECT_THAT(found, HasSubstr("transposed names \"wait\", which tensors does not have"));
  EXPECT_THAT(found, HasSubstr("found the int 1, expected the end of the name of an expert's tensor"));
  EXPECT_THAT(found, HasSubstr("\"model.down_proj\": key \"tensors\" is missing"));
  EXPECT_THAT(found, HasSubstr("expected one \"*\" in the name, for the layer's number"));
}

TEST(FamilyFile, OneMatrixOfQAndKHasNoOpsAfterEither) {
  EditedFamily f;
  f.edit("\"layers.*.attention.q\" ", "\"layers.*.attention.qkv\" ");
  f.edit("rope   = \"plain\"",
         "rope   = \"plain\"\nq_after = [{ use = \"rms_norm\", weight = \"norm\", eps = \"eps\" }]");
  EXPECT_THAT(f.error(), HasSubstr("q_after and k_after need Q and K as matrices of their own"));
}

TEST(FamilyFile, OneOfAnotherFolderComesFirst) {
  EditedFamily f;
  f.edit("doc    = \"Llama 2", "doc    = \"Mine, and Llama 2");
  f.write("llama.toml");
  const auto model = open_weights((kGolden / "tiny-gqa-untied").string());
  EXPECT_THAT(model_kind_for(*model, {f.folder()})->doc, HasSubstr("Mine"));
  EXPECT_THAT(model_kind_for(*model)->doc, HasSubstr("Llama 2 and 3"));
}

TEST(FamilyFile, AFamilyIsFoundByWhatItClaimsToo) {
  EditedFamily f;
  f.edit("name   = \"llama\"", "name   = \"mine\"")
      .edit("claims = { huggingface = [\"llama\"]", "claims = { huggingface = [\"acme\"]");
  f.write("mine.toml");
  const ScratchFolder scratch;
  fs::copy(kGolden / "tiny-gqa-untied", scratch.path(), fs::copy_options::recursive);
  std::string config = text_of(scratch.path() / "config.json");
  const std::string type = "\"model_type\": \"llama\"";
  ASSERT_NE(config.find(type), std::string::npos);
  scratch.put("config.json", config.replace(config.find(type), type.size(), "\"model_type\": \"acme\""));
  const auto model = open_weights(scratch.path().string());
  EXPECT_EQ(model_kind_for(*model, {f.folder()})->name, "mine");
  expect_error(ErrorCode::kModel, {"architecture \"acme\" is not supported; supported: ", "llama", "mistral"},
               [&] { model_kind_for(*model); });
}

TEST(FamilyFile, AllThatAreShippedAreRight) {
  size_t families = 0;
  for (const ModelFamily& f : model_families({})) {
    EXPECT_EQ(read_family(f.file).name, f.name);
    EXPECT_THAT(family_text(f.file), AllOf(HasSubstr("model." + f.name), HasSubstr("num_hidden_layers")));
    ++families;
  }
  EXPECT_EQ(families, static_cast<size_t>(std::distance(fs::directory_iterator(kModels), fs::directory_iterator())));
}

// There is one checkpoint of each family.
class Shipped : public ::testing::TestWithParam<const char*> {
 protected:
  fs::path folder() const { return kGolden / GetParam(); }
};

class Translated : public Shipped {};

TEST_P(Translated, AModelGoesToGgufAndBack) {
  const auto folder_model = open_weights(folder().string());
  if (GetParam() == std::string("tiny-mistral") || GetParam() == std::string("tiny-starcoder2")) {
    expect_error(ErrorCode::kModel, {"sliding_window 24 cannot be said in GGUF"},
                 [&] { model_kind_for(*folder_model)->translate(*folder_model, {}); });
    return;
  }
  if (GetParam() == std::string("tiny-gemma2") || GetParam() == std::string("tiny-gemma3")) {
    expect_error(ErrorCode::kModel, {"query_pre_attn_scalar 24 cannot be said in GGUF"},
                 [&] { model_kind_for(*folder_model)->translate(*folder_model, {}); });
    return;
  }
  if (GetParam() == std::string("tiny-smollm3")) {
    expect_error(ErrorCode::kModel, {"no_rope_layer_interval 2 cannot be said in GGUF"},
                 [&] { model_kind_for(*folder_model)->translate(*folder_model, {}); });
    return;
  }
  const Translation there = model_kind_for(*folder_model)->translate(*folder_model, {});
  const Translation back = model_kind_for(*there.weights)->translate(*there.weights, {});
  EXPECT_EQ(back.weights->tensors().size(), folder_model->tensors().size());
  for (const WeightTensor& t : folder_model->tensors()) {
    const WeightTensor* found = back.weights->find(t.name);
    ASSERT_NE(found, nullptr) << t.name;
    std::vector<std::byte> expected(t.bytes), made(found->bytes);
    folder_model->read(t, 0, expected);
    back.weights->read(*found, 0, made);
    EXPECT_TRUE(made == expected) << t.name;
  }
  const Config made = read_config(*family_for(*back.weights), *back.weights),
               expected = read_config(*family_for(*folder_model), *folder_model);
  for (const auto& [name, value] : expected.numbers) {
    if (name == "window" || name == "first_sliding") continue;  // GGUF has none: they decide nothing here
    EXPECT_EQ(made.numbers.at(name), value) << name;
  }
  EXPECT_EQ(made.ropes.front().theta, expected.ropes.front().theta);
}

// GGUF has no list of layers, so a model goes there only if they follow from its architecture.
TEST(Translations, OfLayersAreRefusedWhereTheOtherConventionHasOthers) {
  std::string config = text_of(kGolden / "tiny-smollm3/config.json");
  const auto edit = [&](const std::string& from, const std::string& to) {
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    config.replace(at, from.size(), to);
  };
  edit("\"no_rope_layer_interval\": 2", "\"no_rope_layer_interval\": 4");
  const ScratchFolder scratch;
  fs::copy(kGolden / "tiny-smollm3", scratch.path(), fs::copy_options::recursive);
  const auto translated = [&] {
    scratch.put("config.json", config);
    const auto model = open_weights(scratch.path().string());
    return model_kind_for(*model)->translate(*model, {}).weights->metadata_keys().size();
  };
  expect_error(ErrorCode::kModel, {"window, rope or cache of layer 1 cannot be said in GGUF's architecture smollm3"},
               translated);
  const size_t list = config.find("\"no_rope_layers\"");
  config.replace(list, config.find(']', list) - list, "\"no_rope_layers\": [1, 1, 1, 0");
  EXPECT_GT(translated(), 8U);
}

// GGUF says 0 for a window that is null in config.json.
TEST(Translations, NoWindowGoesToGgufAndBack) {
  std::string config = text_of(kGolden / "tiny-phi3/config.json");
  const std::string window = "\"sliding_window\": 24";
  ASSERT_NE(config.find(window), std::string::npos);
  config.replace(config.find(window), window.size(), "\"sliding_window\": null");
  const ScratchFolder scratch;
  fs::copy(kGolden / "tiny-phi3", scratch.path(), fs::copy_options::recursive);
  scratch.put("config.json", config);
  const auto model = open_weights(scratch.path().string());
  const Translation there = model_kind_for(*model)->translate(*model, {});
  EXPECT_EQ(*there.weights->metadata("phi3.attention.sliding_window"), MetadataValue(int64_t{0}));
  EXPECT_EQ(read_config(*family_for(*there.weights), *there.weights).numbers.at("window"), 0);
  EXPECT_NE(model_kind_for(*there.weights)->translate(*there.weights, {}).config.find("\"sliding_window\":null"),
            std::string::npos);
}

// Each of these would change what is computed, so it is refused by its name.
TEST_P(Shipped, WhatTheFamilyDoesNotReadIsRefused) {
  const std::string config = text_of(folder() / "config.json");
  const auto refusal = [&](const std::string& more) {
    const ScratchFolder scratch;
    fs::copy(folder(), scratch.path(), fs::copy_options::recursive);
    scratch.put("config.json", "{" + more + "," + config.substr(config.find('{') + 1));
    const auto model = open_weights(scratch.path().string());
    try {
      model_kind_for(*model)->translate(*model, {});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal("\"num_local_experts\": 8"), HasSubstr("key \"num_local_experts\", found 8"));
  EXPECT_THAT(refusal("\"is_encoder_decoder\": true"), HasSubstr("key \"is_encoder_decoder\": found true"));
  EXPECT_THAT(refusal("\"use_qk_norm\": true"), HasSubstr("key \"use_qk_norm\", found true"));
  EXPECT_THAT(refusal("\"clip_qkv\": 8.0"), HasSubstr("key \"clip_qkv\""));
  EXPECT_THAT(refusal("\"rope_scaling\": {\"rope_type\": \"made_up\", \"factor\": 2}"), HasSubstr("rope"));
}

constexpr const char* kDense[] = {
    "tiny-gqa-untied", "tiny-mistral",       "tiny-qwen2",      "tiny-qwen3",    "tiny-gemma2",
    "tiny-gemma3",     "tiny-granite",       "tiny-olmo2",      "tiny-stablelm", "tiny-stablelm-parallel",
    "tiny-phi3",       "tiny-phi3-longrope", "tiny-starcoder2", "tiny-smollm3"};
INSTANTIATE_TEST_SUITE_P(Families, Shipped, ::testing::ValuesIn(kDense));
INSTANTIATE_TEST_SUITE_P(Families, Translated, ::testing::ValuesIn(kDense));
INSTANTIATE_TEST_SUITE_P(Experts, Translated, ::testing::Values("tiny-mixtral", "tiny-qwen3-moe", "tiny-olmoe"));

}  // namespace
}  // namespace tenon::family
