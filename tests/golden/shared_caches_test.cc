// A family's rule for layers that share caches is read from a model's description, and goes to GGUF. What does not
// fit the file or the family is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden_files.h"
#include "support/weights_writer.h"
#include "tenon/core/engine.h"
#include "tenon/core/quantize.h"

namespace tenon {
namespace {

using golden::ids_of;
using golden::kData;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr char kShared[] = "tiny-shared";
const std::filesystem::path kFamily = test::root() / "tests/golden/made/acme_shared.toml";

std::string edited(std::string text, const std::string& before, const std::string& after) {
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  return at == std::string::npos ? text : text.replace(at, before.size(), after);
}

// This is a copy of the checkpoint and of its family.
class SharedCaches : public ::testing::Test {
 protected:
  SharedCaches() {
    std::filesystem::copy(kData / kShared, model());
    family(golden::read_file(kFamily));
  }
  std::filesystem::path model() const { return scratch_.path() / "model"; }
  std::filesystem::path families() const { return scratch_.path() / "families"; }
  void family(const std::string& text) const {
    std::filesystem::create_directories(families());
    testing::write_file(families() / "acme_shared.toml", text);
  }
  // So many of the last layers share caches.
  void share(uint32_t layers) const {
    testing::write_file(model() / "config.json",
                        edited(golden::read_file(kData / kShared / "config.json"), "\"num_kv_shared_layers\": 3",
                               "\"num_kv_shared_layers\": " + std::to_string(layers)));
  }
  std::unique_ptr<Engine> open(const std::filesystem::path& path) const {
    EngineOptions options;
    options.config = path.string();
    options.set = {"device.threads=2", "kv_cache.format=fp32",  "kv_cache.capacity=512",
                   "sampler.chain=[]", "sampler.select=greedy", "quantization.activations=f32"};
    options.model_dirs = {families()};
    return Engine::open(options);
  }
  std::string error() const {
    try {
      open(model());
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  testing::ScratchFolder scratch_;
};

TEST_F(SharedCaches, ThePlanSaysWhoseCacheALayerReads) {
  const auto engine = open(model());
  for (const char* text : {"of layers.2.attention", "of layers.3.attention"}) {
    EXPECT_THAT(engine->pipeline().decisions(), Contains(Field(&Decision::text, HasSubstr(text))));
  }
  const ModelInfo& m = engine->pipeline().model();
  EXPECT_EQ(engine->pipeline().kv_used_bytes(20), 4ULL * 20 * 2 * m.kv_heads * m.head_dim * sizeof(float));
}

TEST_F(SharedCaches, NeedWhatTheirOwnersHave) {
  share(2);
  EXPECT_THAT(error(), HasSubstr("tensor \"model.layers.4.self_attn.k_proj.weight\" is missing"));
  EXPECT_THAT(error(), HasSubstr("tensor \"model.layers.4.self_attn.k_norm.weight\" is missing"));
  share(7);
  EXPECT_THAT(error(), HasSubstr("layers.0.attention shares the cache of an earlier layer, as "));
  EXPECT_THAT(error(), HasSubstr("and none before it has its window and rope and a cache of its own"));
}

// Keys and values that nobody computes are in the file only where the family says so.
TEST_F(SharedCaches, LeaveTensorsThatTheFamilyIgnores) {
  share(4);
  EXPECT_THAT(error(), HasSubstr("tensor \"model.layers.3.self_attn.v_proj.weight\" is"));
  EXPECT_THAT(error(), HasSubstr("the model computes nothing with it"));
  family(edited(golden::read_file(kFamily), "\"*.rotary_emb.inv_freq\"",
                "\"*.rotary_emb.inv_freq\", \"*.3.self_attn.k_*\", \"*.3.self_attn.v_*\""));
  EXPECT_EQ(error(), "no error");
}

TEST_F(SharedCaches, GoToGguf) {
  const std::filesystem::path file = scratch_.path() / "model.gguf";
  quantize_model(model().string(), file, {.target = {.format = TENON_F32}, .model_dirs = {families()}});
  const auto engine = open(file);
  const auto golden = golden::read_json(kData / kShared / "golden.json");
  for (const auto& prompt : golden.at("prompts").as_array()) {
    const Result result =
        engine->generate({.tokens = ids_of(prompt.at("ids")), .max_new_tokens = 64, .ignore_end = true});
    EXPECT_EQ(result.tokens, ids_of(prompt.at("greedy"))) << prompt.at("name");
  }
}

// A calibration has one layer at a time.
TEST_F(SharedCaches, AreNotCalibrated) {
  const auto registry = make_registry({test::plugins()});
  const std::string gptq[] = {"gptq"};
  QuantizeOptions options{.target = quantize_targets(gptq, {}, *registry).front(), .model_dirs = {families()}};
  options.calibration = QuantizeCalibration{.text = "Some text of a few words.", .set = {}, .registry = registry.get()};
  try {
    quantize_model(model().string(), scratch_.path() / "out", options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kModel);
    EXPECT_THAT(e.what(), HasSubstr("layers.4.attention reads the cache of layers.2.attention, and a calibration"));
  }
}

}  // namespace
}  // namespace tenon
