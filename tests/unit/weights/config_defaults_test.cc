// These tests look at what a description means that leaves keys out, for every family file in configs/models. What
// config.json means is what transformers' configuration classes say (tests/differential/data/config_defaults.json, made
// by config_defaults.py there); what GGUF means is what llama.cpp's loader says, in the table below.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <set>

#include "expect_error.h"
#include "model/family/family_model.h"
#include "support/weights_writer.h"

namespace tenon::family {
namespace {

namespace json = boost::json;
using testing::expect_error;
using testing::GgufWriter;
using testing::ScratchFolder;

using Numbers = std::map<std::string, double>;

Family shipped(const std::string& name) {
  return read_family(TENON_SOURCE_DIR "/configs/models/" + name + ".toml");
}

std::vector<Family> shipped_families() {
  std::vector<Family> all;
  for (const auto& entry : std::filesystem::directory_iterator(TENON_SOURCE_DIR "/configs/models")) {
    all.push_back(read_family(entry.path()));
  }
  return all;
}

const json::object& published() {
  static const json::value kAll = [] {
    std::ifstream file(TENON_SOURCE_DIR "/tests/differential/data/config_defaults.json");
    return json::parse(file);
  }();
  return kAll.as_object();
}

std::unique_ptr<Weights> weights_of(const ScratchFolder& folder, const json::object& config) {
  folder.put("config.json", json::serialize(config));
  testing::SafetensorsWriter tensors;  // there are no more layers than tensors
  for (int i = 0; i < 30; ++i) tensors.tensor("x" + std::to_string(i), "F32", {1}, "1234");
  folder.put("model.safetensors", tensors.bytes());
  return open_weights(folder.path().string());
}

double number_of(const json::value& value) {
  return value.is_bool() ? (value.as_bool() ? 1 : 0) : value.to_number<double>();
}

// A case is a model_type of config.json.
class ConfigDefaults : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = published().at("models").at(GetParam()).as_object();
    values_ = model_.at("values").as_object();
    needed_ = published().at("needed").as_object();
    needed_["model_type"] = GetParam();
    // The class of gpt-oss has a rope that no other class has without being told, so a description has to name one.
    if (GetParam() == "gpt_oss") {
      json::object rope = model_.at("rope").as_object();
      rope.erase("rope_theta");
      needed_["rope_parameters"] = rope;
    }
    family_ = shipped(std::string(model_.at("family").as_string()));
  }
  Config read(const json::object& config) {
    const ScratchFolder folder;
    return read_config(family_, *weights_of(folder, config));
  }
  bool is_unknown(const std::string& key) {
    const json::array& unknown = model_.at("unknown").as_array();
    return std::find(unknown.begin(), unknown.end(), json::value(key)) != unknown.end();
  }
  // What is said where config.json says null or nothing, and the class computes it from other numbers.
  double formula(const Number& n, const Config& config) {
    Scope scope;
    config.define(scope);
    return scope.value(n.null ? *n.null : *n.fallback.huggingface);
  }

  json::object model_, values_, needed_;
  Family family_;
};

TEST_P(ConfigDefaults, AreThoseOfTheClass) {
  const Config config = read(needed_);
  for (const Number& n : family_.numbers) {
    if (n.key.huggingface.empty() || !n.fallback.huggingface) continue;
    SCOPED_TRACE(n.key.huggingface);
    if (is_unknown(n.key.huggingface)) {
      // Attention of these reads head_dim if it is there, and has a share of the width otherwise;
      // sliding_window_pattern is another name for what layer_types lists.
      ASSERT_TRUE(n.name == "head_dim" || n.name == "pattern");
      EXPECT_EQ(config.numbers.at(n.name), n.name == "head_dim" ? 1024 / 64 : 6);
      continue;
    }
    ASSERT_TRUE(values_.contains(n.key.huggingface)) << "config_defaults.py is to be run again";
    const json::value& value = values_.at(n.key.huggingface);
    const double expected = value.is_null() ? formula(n, config) : number_of(value);
    EXPECT_EQ(config.numbers.at(n.name), n.type == Number::kReal ? expected : std::round(expected));
  }
}

// All of them at once, each as the class has it: what they stand for is what they are when they are left out.
TEST_P(ConfigDefaults, MaySayThemselves) {
  json::object all = needed_;
  for (const auto& [key, value] : values_) all[key] = value;
  for (const Number& n : family_.numbers) {
    if (!n.also.empty()) all.erase(n.also);
    if (values_.contains(n.key.huggingface) && values_.at(n.key.huggingface).is_null() && !n.null) {
      all.erase(n.key.huggingface);
    }
  }
  const Config said = read(all), left_out = read(needed_);
  for (const auto& [name, value] : left_out.numbers)
    EXPECT_EQ(static_cast<float>(said.numbers.at(name)), static_cast<float>(value)) << name;
  EXPECT_EQ(said.layers, left_out.layers);
  EXPECT_EQ(windows_of(family_, said), windows_of(family_, left_out));
}

TEST_P(ConfigDefaults, NeedEachKeyThatHasNone) {
  for (const auto& [key, value] : published().at("needed").as_object()) {
    json::object without = needed_;
    without.erase(key);
    expect_error(ErrorCode::kModel, {"\"" + std::string(key) + "\" is missing"}, [&] { read(without); });
  }
}

TEST_P(ConfigDefaults, HaveTheWindowsOfTheClass) {
  const json::value* size = values_.if_contains("sliding_window");
  const bool may_be_off = values_.contains("use_sliding_window");
  for (const char* which : {"sliding_layers", "sliding_layers_if_used", "sliding_layers_if_said"}) {
    SCOPED_TRACE(which);
    const bool plain = which == std::string_view("sliding_layers"), said = std::string_view(which).ends_with("said");
    json::object config = needed_;
    if (!plain && may_be_off) config["use_sliding_window"] = true;
    uint32_t window = size == nullptr || size->is_null() ? 0 : size->to_number<uint32_t>();
    if (said && size != nullptr) config["sliding_window"] = window = 100;
    const json::array& layers = model_.at(which).as_array();
    std::vector<uint32_t> expected(30, plain && may_be_off ? 0 : window);
    for (size_t i = 0; i < layers.size(); ++i) expected[i] = layers[i].as_int64() != 0 ? window : 0;
    EXPECT_EQ(windows_of(family_, read(config)), expected);
  }
}

// Such as which layers of SmolLM3 have a rope.
TEST_P(ConfigDefaults, HaveTheLayersOfTheClass) {
  const Config config = read(needed_);
  for (const LayerNumber& n : family_.layer_numbers) {
    if (n.key.huggingface.empty() || !n.choices.empty()) continue;
    const json::array& expected = model_.at("lists").at(n.key.huggingface).as_array();
    ASSERT_EQ(expected.size(), config.layers.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(config.layers[i].at(n.name), number_of(expected[i])) << i;
  }
}

TEST_P(ConfigDefaults, HaveTheRopeOfTheClass) {
  const Config config = read(needed_);
  const json::object& all = model_.at("rope").as_object();
  for (size_t i = 0; i < family_.ropes.size(); ++i) {
    const RopeSpec& spec = family_.ropes[i];
    SCOPED_TRACE(spec.name);
    const json::object& expected = spec.group.empty() ? all : all.at(spec.group).as_object();
    const Rope& found = config.ropes[i];
    EXPECT_EQ(found.theta, expected.at("rope_theta").to_number<double>());
    const json::value* share = expected.if_contains("partial_rotary_factor");
    EXPECT_EQ(found.rotated, config.info.head_dim * (share == nullptr ? 1 : share->to_number<double>()));
    EXPECT_EQ(found.scaling, expected.at("rope_type") == "default" ? RopeScaling::kNone : RopeScaling::kYarn);
  }
}

std::vector<std::string> model_types() {
  std::vector<std::string> all;
  for (const auto& entry : published().at("models").as_object()) all.emplace_back(entry.key());
  return all;
}
INSTANTIATE_TEST_SUITE_P(Published, ConfigDefaults, ::testing::ValuesIn(model_types()),
                         [](const auto& type) { return type.param; });

TEST(ConfigDefaultsOfAll, AreKnown) {
  const std::vector<std::string> types = model_types();
  for (const Family& f : shipped_families()) {
    for (const std::string& type : f.claims.huggingface) {
      EXPECT_EQ(std::count(types.begin(), types.end(), type), 1) << f.name << ": config_defaults.py is to be run again";
    }
  }
}

// transformers takes yarn with a factor of 32 for a gpt-oss that says nothing, and no rope without scaling.
TEST(ConfigDefaultsOfAll, ButTheRopeOfGptOss) {
  json::object config = published().at("needed").as_object();
  config["model_type"] = "gpt_oss";
  const Family family = shipped("gpt_oss");
  for (const char* rope : {"", "rope_scaling", "rope_parameters"}) {
    if (*rope != '\0') config[rope] = nullptr;
    const ScratchFolder folder;
    expect_error(ErrorCode::kModel, {"\"rope_parameters\" is missing"},
                 [&] { read_config(family, *weights_of(folder, config)); });
  }
  config["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 32}, {"original_max_position_embeddings", 4096}};
  const ScratchFolder folder;
  EXPECT_TRUE(read_config(family, *weights_of(folder, config)).ropes.front().whole_pairs);
}

// What GGUF files have in any case; those that a family has no key for are not written.
const Numbers& gguf_needed() {
  static const Numbers kNeeded = {{"layers", 12},     {"width", 128},           {"ffn", 72},
                                  {"heads", 8},       {"context", 4096},        {"eps", 3e-5},
                                  {"window", 48},     {"experts", 4},           {"chosen", 2},
                                  {"expert_ffn", 40}, {"embedding_scale", 1.5}, {"residual_scale", 0.5},
                                  {"logit_scale", 8}, {"attention_scale", 0.25}};
  return kNeeded;
}

// llama.cpp's loader means these by keys that are not there, or computes with these where GGUF has no key.
struct GgufDefaults {
  Numbers numbers;
  std::vector<double> thetas = {10000};
  std::vector<uint32_t> windows = std::vector<uint32_t>(12, 0);
};
const std::map<std::string, GgufDefaults>& gguf_defaults() {
  const uint32_t w = 48;
  const std::vector<uint32_t> every_other = {w, 0, w, 0, w, 0, w, 0, w, 0, w, 0},
                              five_of_six = {w, w, w, w, w, 0, w, w, w, w, w, 0};
  static const std::map<std::string, GgufDefaults> kAll = {
      {"gemma2",
       {{{"query_scalar", 16}, {"attention_softcap", 50}, {"softcap", 30}, {"attention_bias", 0}},
        {10000},
        every_other}},
      {"gemma3",
       {{{"pattern", 6}, {"query_scalar", 16}, {"attention_softcap", 0}, {"softcap", 0}, {"attention_bias", 0}},
        {10000, 10000},
        five_of_six}},
      {"gpt_oss", {{{"alpha", 1.702}, {"limit", 7}}, {10000}, every_other}},
      {"granite", {{{"attention_bias", 0}, {"mlp_bias", 0}}}},
      {"llama", {{{"attention_bias", 0}, {"mlp_bias", 0}}}},
      {"mixtral", {{{"window", 0}}}},
      {"olmo2", {{{"attention_bias", 0}}}},
      {"olmoe", {{{"renormalised", 0}, {"attention_bias", 0}}}},
      {"phi3", {{{"window", 0}}}},
      {"qwen2", {{{"window", 0}, {"slides", 0}, {"first_sliding", 12}}}},
      {"qwen3", {{{"window", 0}, {"slides", 0}, {"first_sliding", 12}, {"attention_bias", 0}}}},
      {"qwen3_moe", {{{"window", 0}, {"slides", 0}, {"renormalised", 1}, {"attention_bias", 0}}}},
      {"smollm3", {{{"interval", 4}, {"window", 0}, {"slides", 0}, {"attention_bias", 0}, {"mlp_bias", 0}}}},
      {"stablelm", {{{"qkv_bias", 0}, {"parallel", 0}}}},
      {"starcoder2", {{{"window", 0}, {"use_bias", 1}}}},
  };
  return kAll;
}

// A file of the family with the keys that it needs, but `without`.
std::unique_ptr<Weights> gguf_of(const ScratchFolder& folder, const Family& f, const std::string& without = "") {
  GgufWriter gguf;
  gguf.add("general.architecture", f.gguf_architecture);
  for (const Number& n : f.numbers) {
    if (n.key.gguf.empty() || n.fallback.gguf || n.name == "vocab" || n.name == without) continue;
    const std::string key = spelled_key(n.key.gguf, f.gguf_architecture);
    const double value = gguf_needed().at(n.name);
    if (n.type == Number::kReal) gguf.add(key, static_cast<float>(value));
    if (n.type == Number::kCount) gguf.add(key, static_cast<uint32_t>(value));
  }
  const std::string data(256, '\0');
  gguf.tensor("token_embd.weight", 0, {1, 64}, data);
  for (int i = 0; i < 12; ++i) gguf.tensor("x" + std::to_string(i), 0, {1, 64}, data);
  return open_weights(folder.put("m.gguf", gguf.bytes()));
}

TEST(GgufDefaults, AreThoseOfLlamaCpp) {
  std::set<std::string> left;
  for (const auto& entry : gguf_defaults()) left.insert(entry.first);
  for (const Family& f : shipped_families()) {
    if (f.claims.gguf.empty()) continue;
    SCOPED_TRACE(f.name);
    ASSERT_EQ(left.erase(f.name), 1u) << "a new family: what its GGUF files mean belongs into the table";
    const GgufDefaults& expected = gguf_defaults().at(f.name);
    Numbers all = expected.numbers;
    all.merge(Numbers{{"kv_heads", 8}, {"head_dim", 16}, {"tied", 1}, {"vocab", 1}});
    const ScratchFolder folder;
    const Config config = read_config(f, *gguf_of(folder, f));
    for (const Number& n : f.numbers) {
      const bool needed = !n.key.gguf.empty() && !n.fallback.gguf && n.name != "vocab";
      ASSERT_TRUE(needed || all.contains(n.name)) << n.name << ": what its absence means belongs into the table";
      EXPECT_EQ(static_cast<float>(config.numbers.at(n.name)),
                static_cast<float>(needed ? gguf_needed().at(n.name) : all.at(n.name)))
          << n.name;
    }
    std::vector<double> thetas;
    for (const Rope& r : config.ropes) {
      thetas.push_back(r.theta);
      EXPECT_EQ(r.rotated, 16u);
      EXPECT_EQ(r.scaling, RopeScaling::kNone);
      EXPECT_EQ(r.attention_factor, 1);
    }
    EXPECT_EQ(thetas, expected.thetas);
    EXPECT_EQ(windows_of(f, config), expected.windows);
  }
  EXPECT_TRUE(left.empty());
}

TEST(GgufDefaults, NeedEachKeyThatHasNone) {
  for (const Family& f : shipped_families()) {
    if (f.claims.gguf.empty()) continue;
    for (const Number& n : f.numbers) {
      if (n.key.gguf.empty() || n.fallback.gguf || n.name == "vocab") continue;
      const ScratchFolder folder;
      expect_error(ErrorCode::kModel, {"\"" + spelled_key(n.key.gguf, f.gguf_architecture) + "\" is missing"},
                   [&] { read_config(f, *gguf_of(folder, f, n.name)); });
    }
  }
}

}  // namespace
}  // namespace tenon::family
