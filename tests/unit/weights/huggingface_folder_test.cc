// These tests open folders as Hugging Face has them: one file, shards with an index, and what is missing or
// contradicts.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "expect_error.h"
#include "support/weights_writer.h"
#include "tenon/core/weights.h"

namespace tenon {
namespace {

using testing::expect_error;
using testing::index_json;
using testing::SafetensorsWriter;
using testing::ScratchFolder;

constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "rope_theta": 100000.0,
  "tie_word_embeddings": true, "eos_token_id": [2, 3], "rope_scaling": {"factor": 32.0, "rope_type": "llama3"},
  "quantization_config": null, "mixed": [1, "a", {"b": 2}], "halves": [1, 0.5], "nothing": [],
  "large": 18446744073709551615
}
)";

std::string one_tensor(const std::string& name, float value) {
  return SafetensorsWriter().tensor(name, "F32", {1}, testing::bytes_of<float>({value})).bytes();
}

float first_float(const Weights& model, const std::string& name) {
  const WeightTensor* tensor = model.find(name);
  if (!tensor) return -1;
  float number = 0;
  model.read(*tensor, 0, std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

void open(const ScratchFolder& folder, const std::string& name = "") {
  open_weights((folder.path() / name).string());
}

TEST(HuggingFaceFolder, DoesNotListBiasesOfZerosOfQuantizedMatrices) {
  const ScratchFolder folder;
  folder.put("config.json", R"({"quantization_config": {"quant_method": "gptq"}})");
  SafetensorsWriter file;
  for (const auto& [name, value] : {std::pair<const char*, float>{"a.qweight", 1},
                                    {"a.bias", 0},
                                    {"b.qweight", 1},
                                    {"b.bias", 2},
                                    {"c.weight", 1},
                                    {"c.bias", 0},
                                    {"d.bias", 0}}) {
    file.tensor(name, "F32", {1}, testing::bytes_of<float>({value}));
  }
  folder.put("model.safetensors", file.bytes());
  const auto listed = [&] {
    const auto model = open_weights(folder.path().string());
    std::string names;
    for (const WeightTensor& t : model->tensors()) names += t.name + " ";
    return names;
  };
  EXPECT_EQ(listed(), "a.qweight b.qweight b.bias c.weight c.bias d.bias ");
  // A model that has the bias finds it.
  EXPECT_EQ(first_float(*open_weights(folder.path().string()), "a.bias"), 0);
  folder.put("config.json", "{}");
  EXPECT_EQ(listed(), "a.qweight a.bias b.qweight b.bias c.weight c.bias d.bias ");
}

TEST(HuggingFaceFolder, FlattensConfig) {
  const ScratchFolder folder;
  folder.put("config.json", kConfig);
  folder.put("generation_config.json", R"({"eos_token_id": 7, "do_sample": false})");
  folder.put("model.safetensors", one_tensor("w", 3));
  const auto model = open_weights(folder.path().string());
  EXPECT_EQ(model->convention(), "huggingface");
  EXPECT_EQ(model->files().at(0), folder.path() / "model.safetensors");
  EXPECT_EQ(first_float(*model, "w"), 3);
  EXPECT_EQ(metadata_text(*model, "model_type"), "llama");
  EXPECT_EQ(metadata_int(*model, "hidden_size"), 576);
  EXPECT_EQ(metadata_real(*model, "hidden_size"), 576);
  EXPECT_EQ(metadata_real(*model, "rope_theta"), 1e5);
  EXPECT_EQ(metadata_bool(*model, "tie_word_embeddings"), true);
  EXPECT_EQ(metadata_real(*model, "rope_scaling.factor"), 32);
  EXPECT_EQ(metadata_text(*model, "rope_scaling.rope_type"), "llama3");
  EXPECT_EQ(metadata_int(*model, "generation_config.eos_token_id"), 7);
  EXPECT_EQ(metadata_bool(*model, "generation_config.do_sample"), false);
  EXPECT_EQ(std::get<std::vector<int64_t>>(*model->metadata("eos_token_id")), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::get<std::vector<double>>(*model->metadata("halves")), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(std::get<std::vector<std::string>>(*model->metadata("architectures")).at(0), "LlamaForCausalLM");
  EXPECT_EQ(std::get<uint64_t>(*model->metadata("large")), ~uint64_t{0});
  EXPECT_EQ(metadata_int(*model, "mixed.0"), 1);
  EXPECT_EQ(metadata_text(*model, "mixed.1"), "a");
  EXPECT_EQ(metadata_int(*model, "mixed.2.b"), 2);
  EXPECT_NE(model->metadata("nothing"), nullptr);
  EXPECT_EQ(model->metadata("quantization_config"), nullptr);
  EXPECT_EQ(metadata_int(*model, "absent"), std::nullopt);

  const std::string file = (folder.path() / "config.json").string();
  expect_error(ErrorCode::kModel, {file, "\"model_type\"", "\"llama\"", "integer"},
               [&] { metadata_int(*model, "model_type"); });
  expect_error(ErrorCode::kModel, {"\"rope_theta\"", "number 1", "integer"},
               [&] { metadata_int(*model, "rope_theta"); });
  expect_error(ErrorCode::kModel, {"\"eos_token_id\"", "list of 2", "a number"},
               [&] { metadata_real(*model, "eos_token_id"); });
  expect_error(ErrorCode::kModel, {"\"hidden_size\"", "576", "true or false"},
               [&] { metadata_bool(*model, "hidden_size"); });
  expect_error(ErrorCode::kModel, {"\"large\"", "18446744073709551615"}, [&] { metadata_int(*model, "large"); });
}

TEST(HuggingFaceFolder, HasTheDescriptionOfStoredMatricesAsText) {
  const ScratchFolder folder;
  folder.put("config.json", R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})");
  folder.put("model.safetensors", one_tensor("w", 3));
  const auto model = open_weights(folder.path().string());
  EXPECT_EQ(metadata_text(*model, "quantization_config"), R"({"quant_method":"gptq","bits":4})");
  EXPECT_EQ(metadata_int(*model, "quantization_config.bits"), 4);
}

TEST(HuggingFaceFolder, FindsAllTensorsUnderAName) {
  const ScratchFolder folder;
  folder.put("config.json", "{}");
  SafetensorsWriter writer;
  for (const char* name : {"a.w.scales", "a.w", "a.w.qweight", "a.w_norm.weight", "a.wx.bias"}) {
    writer.tensor(name, "F32", {1}, "abcd");
  }
  folder.put("model.safetensors", writer.bytes());
  const auto model = open_weights(folder.path().string());
  std::vector<std::string> names;
  for (const WeightTensor* t : model->find_under("a.w")) names.push_back(t->name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.w.qweight", "a.w.scales"}));
  EXPECT_TRUE(model->find_under("b").empty());
}

TEST(HuggingFaceFolder, FindsTheConfigBesideAFile) {
  const ScratchFolder folder;
  const std::string file = folder.put("only.safetensors", one_tensor("w", 4));
  expect_error(ErrorCode::kModel, {(folder.path() / "config.json").string(), "missing"}, [&] { open_weights(file); });
  folder.put("config.json", kConfig);
  EXPECT_EQ(first_float(*open_weights(file), "w"), 4);
  EXPECT_EQ(first_float(*open_weights(folder.path().string()), "w"), 4);
}

class Sharded : public ::testing::Test {
 protected:
  Sharded() {
    folder_.put("config.json", kConfig);
    folder_.put("model-00001-of-00002.safetensors", one_tensor("a", 1));
    folder_.put("model-00002-of-00002.safetensors", one_tensor("b", 2));
    put_index({{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}});
  }

  void put_index(const std::map<std::string, std::string>& map) {
    folder_.put("model.safetensors.index.json", index_json(map));
  }

  ScratchFolder folder_;
};

TEST_F(Sharded, OpensFromFolderIndexOrAnyShard) {
  for (const char* name :
       {"", "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    const auto model = open_weights((folder_.path() / name).string());
    EXPECT_EQ(model->files().size(), 2U);
    EXPECT_EQ(first_float(*model, "a"), 1);
    EXPECT_EQ(first_float(*model, "b"), 2);
    EXPECT_EQ(model->find("b")->file, 1U);
  }
}

TEST_F(Sharded, ReportsMissingShardsAndTensors) {
  put_index({{"a", "model-00001-of-00002.safetensors"}, {"c", "model-00002-of-00002.safetensors"}});
  expect_error(ErrorCode::kModel, {"index.json", "\"c\"", "model-00002-of-00002.safetensors"}, [&] { open(folder_); });
  put_index({{"a", "model-00002-of-00002.safetensors"}, {"b", "model-00001-of-00002.safetensors"}});
  expect_error(ErrorCode::kModel, {"\"a\"", "it is in \"model-00001-of-00002.safetensors\"", "\"b\""},
               [&] { open(folder_); });
  put_index({{"a", "gone-1.safetensors"}, {"b", "gone-2.safetensors"}});
  expect_error(ErrorCode::kModel, {"index.json", "gone-1", "gone-2", "missing"}, [&] { open(folder_); });
  put_index({{"a", "../model.safetensors"}});
  expect_error(ErrorCode::kModel, {"\"a\"", "same folder", "../model"}, [&] { open(folder_); });
  put_index({});
  expect_error(ErrorCode::kModel, {"weight_map is empty"}, [&] { open(folder_); });
  folder_.put("model.safetensors.index.json", "{\n  \"weight_map\": {\n    \"a\": ,\n");
  expect_error(ErrorCode::kModel, {"index.json:3:1", "no valid JSON"}, [&] { open(folder_); });
  folder_.put("model.safetensors.index.json", "{\"weight_map\": []}");
  expect_error(ErrorCode::kModel, {"index.json", "weight_map"}, [&] { open(folder_); });
  folder_.put("model.safetensors.index.json", "{\"weight_map\": {\"a\": 3}}");
  expect_error(ErrorCode::kModel, {"\"a\"", "\"3\""}, [&] { open(folder_); });
  std::filesystem::remove(folder_.path() / "model.safetensors.index.json");
  expect_error(ErrorCode::kModel, {"part 1 of 2", "model.safetensors.index.json", "missing"},
               [&] { open(folder_, "model-00001-of-00002.safetensors"); });
  expect_error(ErrorCode::kModel, {"several .safetensors", "model-00001-of-00002.safetensors"}, [&] { open(folder_); });
}

TEST_F(Sharded, ReportsATensorInTwoShards) {
  folder_.put("model-00002-of-00002.safetensors",
              SafetensorsWriter().tensor("b", "F32", {1}, "1234").tensor("a", "F32", {1}, "5678").bytes());
  expect_error(ErrorCode::kModel, {"\"a\" is there twice", "model-00001-of-", "model-00002-of-"},
               [&] { open(folder_); });
}

TEST(HuggingFaceFolder, ReportsATensorNamedTwice) {
  const ScratchFolder folder;
  folder.put("config.json", kConfig);
  folder.put("model.safetensors",
             SafetensorsWriter().tensor("w", "F32", {1}, "1234").tensor("w", "F32", {1}, "5678").bytes());
  expect_error(ErrorCode::kModel, {"model.safetensors", "\"w\" is there twice"}, [&] { open(folder); });
}

TEST(HuggingFaceFolder, ReportsFoldersWithoutWeights) {
  const ScratchFolder folder;
  expect_error(ErrorCode::kModel, {folder.path().string(), "no model", "the folder is empty"}, [&] { open(folder); });
  folder.put("pytorch_model.bin", "x");
  expect_error(ErrorCode::kModel, {"model.safetensors", "found \"pytorch_model.bin\""}, [&] { open(folder); });
  folder.put("m.gguf", "x");
  expect_error(ErrorCode::kModel, {"GGUF", "\"m.gguf\""}, [&] { open(folder); });
}

TEST(HuggingFaceFolder, ReportsABrokenConfig) {
  const ScratchFolder folder;
  folder.put("model.safetensors", one_tensor("w", 1));
  folder.put("config.json", "");
  expect_error(ErrorCode::kModel, {"config.json:1:1", "no valid JSON"}, [&] { open(folder); });
  folder.put("config.json", "{\"a\": 1,\n \"b\": oops}");
  expect_error(ErrorCode::kModel, {"config.json:2:7", "no valid JSON"}, [&] { open(folder); });
  folder.put("config.json", "[1]");
  expect_error(ErrorCode::kModel, {"config.json", "no JSON object"}, [&] { open(folder); });
  folder.put("config.json", "{\"a\":" + std::string(100000, '['));
  expect_error(ErrorCode::kModel, {"config.json:1:", "no valid JSON"}, [&] { open(folder); });
  folder.put("config.json", R"({"eps": 1, "rope": {"theta": 1, "type": "x", "theta": 2}, "theta": 3})");
  expect_error(ErrorCode::kModel, {"config.json", "key \"rope.theta\" stands twice"}, [&] { open(folder); });
  folder.put("config.json", R"({"eps": 1, "all": [{"eps": 1}, {"eps": 2}], "\u0065ps": 2})");
  expect_error(ErrorCode::kModel, {"config.json", "key \"eps\" stands twice"}, [&] { open(folder); });
  folder.put("config.json", std::string((16 << 20) + 1, ' '));
  expect_error(ErrorCode::kModel, {"config.json", "16777217 bytes"}, [&] { open(folder); });
}

}  // namespace
}  // namespace tenon
