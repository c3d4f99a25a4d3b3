// Families beside llama.cpp's converter (tests/golden/converted.py): a checkpoint that goes to GGUF has the tensors
// that the converter makes of it, to the bit, and the converter's description of it is read as the checkpoint's.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <set>

#include "expect_error.h"
#include "golden/golden_files.h"
#include "model/family/family_config.h"
#include "model/family/family_model.h"
#include "sha256.h"
#include "support/weights_writer.h"
#include "tenon/core/module.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::family {
namespace {

using testing::expect_error;
using testing::ScratchFolder;
namespace fs = std::filesystem;
namespace json = boost::json;

constexpr uint32_t kTypeF32 = 0;

const json::object& converted() {
  static const json::value kAll = golden::read_json(golden::kData / "converted.json");
  return kAll.as_object();
}

std::vector<std::string> checkpoints() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : converted()) names.emplace_back(name);
  return names;
}

std::vector<float> values_of(const Weights& model, const WeightTensor& t) {
  std::vector<std::byte> raw(t.bytes);
  model.read(t, 0, raw);
  size_t count = 1;
  for (const int64_t dim : t.shape) count *= static_cast<size_t>(dim);
  std::vector<float> values(count);
  sdk::unpack_row(t.format, raw.data(), count, values.data());
  return values;
}

std::string_view bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string hash_of(const std::vector<float>& values) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return app::sha256_hex(std::span(bytes, values.size() * sizeof(float))).substr(0, 16);
}

class Converted : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const fs::path from = golden::kData / GetParam();
    fs::copy(from, scratch_.path(), fs::copy_options::recursive);
    json::object config = golden::read_json(from / "config.json").as_object();
    for (const auto& [key, value] : entry().at("edits").as_object()) config[key] = value;
    scratch_.put("config.json", json::serialize(config));
    folder_ = open_weights(scratch_.path().string());
    gguf_ = model_kind_for(*folder_)->translate(*folder_, {}).weights;
  }
  const json::object& entry() const { return converted().at(GetParam()).as_object(); }

  // Returns the converter's description with our tensors, which are those of the converter. `changed` has keys with
  // other values.
  std::unique_ptr<Weights> as_converted(const json::object& changed = {}) const {
    testing::GgufWriter writer;
    json::object metadata = entry().at("metadata").as_object();
    for (const auto& [key, value] : changed) metadata[key] = value;
    for (const auto& [key, value] : metadata) add(writer, key, value);
    for (const WeightTensor& t : gguf_->tensors()) {
      writer.tensor(t.name, kTypeF32, {t.shape.begin(), t.shape.end()}, bytes_of(values_of(*gguf_, t)));
    }
    return open_weights(scratch_.put("converted.gguf", writer.bytes()));
  }
  static void expect_near(const std::vector<float>& found, const json::array& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const auto want = expected[i].to_number<float>();
      EXPECT_NEAR(found[i], want, want * 1e-6F);
    }
  }
  static void add(testing::GgufWriter& writer, std::string_view key, const json::value& value) {
    if (value.is_string()) writer.add(key, std::string(value.as_string()));
    if (value.is_int64()) writer.add(key, static_cast<uint32_t>(value.as_int64()));
    if (value.is_double()) writer.add(key, static_cast<float>(value.as_double()));
    if (value.is_bool()) writer.add(key, value.as_bool());
  }

  ScratchFolder scratch_;
  std::unique_ptr<Weights> folder_, gguf_;
};

TEST_P(Converted, TheTensorsAreThoseOfTheConverter) {
  std::set<std::string> made, expected;
  for (const WeightTensor& t : gguf_->tensors()) made.insert(t.name);
  for (const auto& [name, description] : entry().at("tensors").as_object()) {
    expected.emplace(name);
    const WeightTensor* t = gguf_->find(std::string_view(name));
    if (t == nullptr) continue;
    if (name.starts_with("rope_")) {
      expect_near(values_of(*gguf_, *t), description.as_array());
      continue;
    }
    json::array found;
    found.emplace_back(hash_of(values_of(*gguf_, *t)));
    for (const int64_t dim : t->shape) found.emplace_back(dim);
    EXPECT_EQ(found, description) << name;
  }
  EXPECT_EQ(made, expected);
}

TEST_P(Converted, WhatBothDescribeIsTheSame) {
  for (const auto& [key, value] : entry().at("metadata").as_object()) {
    const MetadataValue* made = gguf_->metadata(std::string_view(key));
    if (made == nullptr) continue;
    if (value.is_string()) {
      EXPECT_EQ(*made, MetadataValue(std::string(value.as_string()))) << key;
    } else if (value.is_bool()) {
      EXPECT_EQ(*made, MetadataValue(value.as_bool())) << key;
    } else {
      const auto want = value.to_number<double>();
      EXPECT_NEAR(*metadata_real(*gguf_, std::string(key)), want, std::abs(want) * 1e-6) << key;
    }
  }
}

TEST_P(Converted, TheDescriptionOfTheConverterIsReadAsTheCheckpoints) {
  const std::unique_ptr<Weights> file = as_converted();
  const auto family = family_for(*file), own = family_for(*folder_);
  const bool plain_mistral = own->name == "mistral";  // without a window such a model is a Llama
  EXPECT_EQ(family->name, plain_mistral ? "llama" : own->name);
  const Config found = read_config(*family, *file), expected = read_config(*own, *folder_);
  for (const auto& [name, value] : expected.numbers) {
    const bool decides_nothing = name == "window" || name == "first_sliding" || name.ends_with("_bias");
    if (decides_nothing || !found.numbers.contains(name)) continue;
    EXPECT_NEAR(found.numbers.at(name), value, std::abs(value) * 1e-6) << name;
  }
  EXPECT_EQ(layer_facts(*family, found), layer_facts(*own, expected));
  ASSERT_EQ(found.ropes.size(), expected.ropes.size());
  for (size_t i = 0; i < found.ropes.size(); ++i) {
    EXPECT_NEAR(found.ropes[i].attention_factor, expected.ropes[i].attention_factor, 1e-6);
    for (const uint32_t positions : {1U, 512U}) {
      const std::vector<double> f = frequencies(found.ropes[i], positions),
                                want = frequencies(expected.ropes[i], positions);
      ASSERT_EQ(f.size(), want.size());
      for (size_t pair = 0; pair < f.size(); ++pair) EXPECT_NEAR(f[pair], want[pair], want[pair] * 1e-6);
    }
  }
}

// Each of these would change what is computed.
TEST_P(Converted, WhatTheFamilyDoesNotReadIsRefused) {
  const std::string architecture(entry().at("metadata").at("general.architecture").as_string());
  const json::object changes{{"attention.max_alibi_bias", 8.0}, {"attention.clamp_kqv", 8.0},
                             {"attention.causal", false},       {"expert_shared_count", 1},
                             {"rope.scaling.type", "made_up"},  {"attention.value_length", 7}};
  for (const auto& [key, value] : changes) {
    const std::string name = architecture + "." + std::string(key);
    const std::unique_ptr<Weights> model = as_converted({{name, value}});
    expect_error(ErrorCode::kModel, {"key \"" + name + "\""}, [&] { model_kind_for(*model)->translate(*model, {}); });
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Converted, ::testing::ValuesIn(checkpoints()), golden::checkpoint_name);

TEST(StackedExperts, AreFoundOneByOne) {
  const auto folder = open_weights((golden::kData / "tiny-mixtral").string());
  const Translation there = model_kind_for(*folder)->translate(*folder, {});
  const WeightTensor* all = there.weights->find("blk.1.ffn_up_exps.weight");
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(all->shape, (std::vector<int64_t>{5, 72, 36}));
  const std::vector<float> stacked = values_of(*there.weights, *all);
  for (size_t e = 0; e < 5; ++e) {
    const WeightTensor* one = there.weights->find("blk.1.ffn_up_exps." + std::to_string(e) + ".weight");
    ASSERT_NE(one, nullptr);
    const auto begin = stacked.begin() + static_cast<ptrdiff_t>(e * 72 * 36);
    EXPECT_EQ(values_of(*there.weights, *one), std::vector<float>(begin, begin + 72 * 36));
  }
  EXPECT_EQ(there.weights->find("blk.1.ffn_up_exps.5.weight"), nullptr);
}

// The converter's file of gpt-oss becomes the parts that the folder's stacked tensors are cut into.
TEST(StackedExperts, OfAFolderAreThoseOfTheFile) {
  const auto folder = open_weights((golden::kData / "tiny-gpt-oss").string());
  const auto file = open_weights((golden::kData / "tiny-gpt-oss/tiny-gpt-oss.gguf").string());
  const std::unique_ptr<Weights> cut = model_kind_for(*folder)->view(*folder);
  const Translation made = model_kind_for(*file)->translate(*file, {});
  ASSERT_EQ(made.weights->tensors().size(), cut->tensors().size());
  for (const WeightTensor& t : cut->tensors()) {
    const WeightTensor* same = made.weights->find(t.name);
    ASSERT_NE(same, nullptr) << t.name;
    EXPECT_EQ(same->shape, t.shape) << t.name;
    EXPECT_EQ(values_of(*made.weights, *same), values_of(*cut, t)) << t.name;
  }
  EXPECT_EQ(cut->find("model.layers.2.mlp.experts.gate_up_proj.4.up.bias")->shape, std::vector<int64_t>{40});
}

TEST(StackedExperts, OfOneThatIsStoredOtherwiseAreRefused) {
  const ScratchFolder scratch;
  testing::SafetensorsWriter writer;
  const auto folder = open_weights((golden::kData / "tiny-mixtral").string());
  for (const WeightTensor& t : folder->tensors()) {
    const bool other = t.name == "model.layers.1.block_sparse_moe.experts.3.w3.weight";
    std::string raw(t.bytes, '\0');
    folder->read(t, 0, std::as_writable_bytes(std::span(raw)));
    const std::vector<uint64_t> shape(t.shape.begin(), t.shape.end());
    const std::vector<float> values = values_of(*folder, t);
    writer.tensor(t.name, other ? "F32" : "BF16", shape, other ? bytes_of(values) : std::string_view(raw));
  }
  scratch.put("model.safetensors", writer.bytes());
  scratch.put("config.json", golden::read_file(golden::kData / "tiny-mixtral/config.json"));
  const auto model = open_weights(scratch.path().string());
  expect_error(ErrorCode::kModel, {"experts.0.w3.weight", "experts.3.w3.weight", "one tensor in GGUF"},
               [&] { model_kind_for(*model)->translate(*model, {}); });
}

}  // namespace
}  // namespace tenon::family
