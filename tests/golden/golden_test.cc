// This compares logits and greedy tokens of small checkpoints, and SmolLM2's text, with transformers'. See README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "golden_files.h"
#include "support/byte_dots.h"
#include "support/pipelines.h"
#include "support/weights_writer.h"
#include "tenon/core/engine.h"

namespace tenon {
namespace {

using golden::floats_of;
using golden::ids_of;
using golden::kData;
using golden::read_file;

struct Case {
  std::string name, model, goldens, attention;
  std::string device = "cpu", dtype = "fp32";
  bool published = false;  // weights are quantized as another package publishes them
  bool made = false;       // the family and its op lie in a folder of their own
  bool routed = false;     // only some schemes have the matrices of experts
};

// This is a share of the largest logit: how far rounding of weights and activations to this type may take any
// other. Where the CPU has dot products of bytes, published forms multiply x in 16 bits: each of some ten products
// in a row is then off by 2e-5 of its size.
double tolerance(const Case& c) {
  if (c.dtype != "fp32") return c.dtype == "fp16" ? 1.5e-2 : 4e-2;
  return c.published && c.device == "cpu" && !test::byte_dot_sets().empty() ? 5e-4 : 1e-4;
}

std::string label(const Case& c) {
  std::string name = c.name + "_" + c.attention;
  if (c.device != "cpu" || c.dtype != "fp32") name += "_" + c.device + "_" + c.dtype;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  return name;
}
std::string test_name(const ::testing::TestParamInfo<Case>& info) {
  return label(info.param);
}
void PrintTo(const Case& c, std::ostream* out) {
  *out << label(c);
}

constexpr const char* kFamilies[] = {"tiny-mistral",
                                     "tiny-qwen2",
                                     "tiny-qwen2-tied",
                                     "tiny-qwen3",
                                     "tiny-qwen3-tied",
                                     "tiny-gemma3",
                                     "tiny-gemma2",
                                     "tiny-granite",
                                     "tiny-olmo2",
                                     "tiny-stablelm",
                                     "tiny-stablelm-parallel",
                                     "tiny-phi3",
                                     "tiny-phi3-longrope",
                                     "tiny-starcoder2",
                                     "tiny-smollm3"};

constexpr const char* kPublished[] = {
    "tiny-bnb-nf4", "tiny-bnb-fp4",   "tiny-bnb-int8",     "tiny-fp8-block",    "tiny-ct-fp8-static", "tiny-ct-w8a8",
    "tiny-gptq",    "tiny-gptq-3bit", "tiny-awq",          "tiny-ct-int4",      "tiny-ct-mxfp4",      "tiny-ct-nvfp4",
    "tiny-hqq",     "tiny-hqq-3bit",  "tiny-torchao-int8", "tiny-torchao-intx", "tiny-torchao-int4"};

constexpr const char* kWithExperts[] = {"tiny-mixtral", "tiny-qwen3-moe", "tiny-olmoe", "tiny-gpt-oss"};

constexpr const char* kMade[] = {"tiny-made", "tiny-shared"};

// llama.cpp's converter makes this file of a checkpoint with stacked experts.
constexpr const char *kStacked = "tiny-gpt-oss", *kStackedFile = "tiny-gpt-oss/tiny-gpt-oss.gguf";

constexpr const char* kPublishedExperts = "tiny-gpt-oss-mxfp4";

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const char* model : kPublished) {
    list.push_back({model, model, model, "flash", "cpu", "fp32", true});
    // Long prompts are rounded to fp16 there, which takes many an x to another number in 8 bits than the reference's.
    constexpr std::string_view kRounded[] = {"tiny-bnb-int8", "tiny-fp8-block", "tiny-ct-fp8-static", "tiny-ct-w8a8"};
    if (std::find(std::begin(kRounded), std::end(kRounded), model) != std::end(kRounded)) continue;
    list.push_back({model, model, model, "flash", "cuda", "fp16", true});
  }
  for (const char* model : kWithExperts) {
    for (const char* attention : {"flash", "reference"}) {
      list.push_back({model, model, model, attention, "cpu", "fp32", false, false, true});
    }
    list.push_back({model, model, model, "flash", "cuda", "fp32"});
  }
  for (const char* attention : {"flash", "reference"}) {
    list.push_back({"gguf-gpt-oss", kStackedFile, kStacked, attention, "cpu", "fp32", false, false, true});
    list.push_back({"gguf-gpt-oss", kStackedFile, kStacked, attention, "cuda", "fp32"});
    list.push_back(
        {kPublishedExperts, kPublishedExperts, kPublishedExperts, attention, "cpu", "fp32", true, false, true});
  }
  list.push_back({kPublishedExperts, kPublishedExperts, kPublishedExperts, "flash", "cuda", "fp32", true, false, true});
  for (const char* model : kMade) {
    list.push_back({model, model, model, "flash", "cpu", "fp32", false, true});
    list.push_back({model, model, model, "reference", "cpu", "fp32", false, true});
    list.push_back({model, model, model, "flash", "cuda", "fp32", false, true});
  }
  for (const char* attention : {"flash", "reference"}) {
    for (const char* model :
         {"tiny-gqa-untied", "tiny-mha-tied", "tiny-llama3-scaling", "tiny-linear-scaling", "tiny-odd"}) {
      list.push_back({model, model, model, attention});
    }
    for (const char* model : kFamilies) list.push_back({model, model, model, attention});
    list.push_back({"gguf-f32", "tiny-gqa-untied.gguf", "tiny-gqa-untied", attention});
    for (const char* model : {"tiny-gguf-q8_0", "tiny-gguf-mixed", "tiny-gguf-k"}) {
      list.push_back({model, std::string(model) + "/" + model + ".gguf", model, attention});
    }
  }
  for (const char* model : kFamilies) list.push_back({model, model, model, "flash", "cuda", "fp32"});
  for (const char* model :
       {"tiny-gqa-untied", "tiny-mha-tied", "tiny-llama3-scaling", "tiny-linear-scaling", "tiny-odd"}) {
    for (const char* dtype : {"fp32", "fp16", "bf16"}) {
      if (std::string(dtype) != "fp32") list.push_back({model, model, model, "flash", "cpu", dtype});
      list.push_back({model, model, model, "flash", "cuda", dtype});
    }
  }
  return list;
}

std::vector<Case> exact_cases() {
  std::vector<Case> list = cases();
  std::erase_if(list, [](const Case& c) { return c.dtype != "fp32"; });
  return list;
}

class Golden : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    std::vector<std::string> set = {
        "device.use=" + c.device, "attention.use=" + c.attention, "kv_cache.capacity=512",     "sampler.chain=[]",
        "sampler.select=greedy",  "pipeline.embeddings=true",     "kv_cache.format=" + c.dtype};
    if (c.device == "cpu") {
      set.emplace_back("device.threads=2");
    } else if (const std::string problem = test::no_gpu(); !problem.empty()) {
      GTEST_SKIP() << problem;
    }
    if (c.published) {
      set.emplace_back("quantization.use=auto");
      // Matrices that no expert has are in BF16, whose products could round x.
      if (c.routed)
        set.emplace_back(R"(quantization.override=[{match="*", use="none", dtype="fp32"},
                                        {match="*.experts.[gud]*", use="mxfp4"}])");
    } else if (c.device == "cpu" && c.dtype == "fp32" && !c.routed) {
      set.emplace_back("quantization.activations=f32");
    } else {
      set.emplace_back("quantization.use=none");
      set.emplace_back("quantization.dtype=" + c.dtype);
    }
    EngineOptions options{.config = (kData / c.model).string(), .set = set, .score_rows = 64};
    if (c.made) {
      bring_families();
      options.plugin_dirs = {stranger_.path()};
      options.model_dirs = {stranger_.path()};
    }
    engine_ = Engine::open(options);
    golden_ = boost::json::parse(read_file(kData / GetParam().goldens / "golden.json"));
  }

  // Puts the files of families and an op into somebody else's folder.
  void bring_families() const {
    for (const char* file : {"acme.toml", "acme_shared.toml"}) {
      std::filesystem::copy(test::root() / "tests/golden/made" / file, stranger_.path());
    }
    std::filesystem::copy(TENON_MADE_PLUGINS, stranger_.path(), std::filesystem::copy_options::recursive);
  }

  testing::ScratchFolder stranger_;
  std::unique_ptr<Engine> engine_;
  boost::json::value golden_;
};

TEST_P(Golden, LogitsAreThoseOfTransformers) {
  for (const auto& prompt : golden_.at("prompts").as_array()) {
    std::vector<int32_t> sequence = ids_of(prompt.at("ids"));
    const std::vector<int32_t> greedy = ids_of(prompt.at("greedy"));
    sequence.insert(sequence.end(), greedy.begin(), greedy.end());
    const std::vector<int32_t> positions = ids_of(prompt.at("logits_positions"));
    sequence.resize(static_cast<size_t>(positions.back()) + 1);
    const auto file = kData / GetParam().goldens / std::string(prompt.at("logits_file").as_string());
    const std::vector<float> expected = floats_of(file);
    const size_t vocab = engine_->pipeline().model().vocab;
    ASSERT_EQ(expected.size(), positions.size() * vocab);

    size_t compared = 0;
    double worst = 0, peak = 0;
    engine_->score(sequence, 0, [&](uint32_t row, std::span<const float> logits) {
      const auto at = std::find(positions.begin(), positions.end(), static_cast<int32_t>(row));
      if (at == positions.end()) return;
      ++compared;
      for (size_t i = 0; i < vocab; ++i) {
        const double want = static_cast<double>(expected[static_cast<size_t>(at - positions.begin()) * vocab + i]);
        worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - want));
        peak = std::max(peak, std::abs(want));
      }
    });
    EXPECT_EQ(compared, positions.size());
    EXPECT_LT(worst / peak, tolerance(GetParam())) << prompt.at("name");
  }
}

// The mean of the hidden states after the final norm, and the last of them.
class Embeddings : public Golden {};

TEST_P(Embeddings, AreThoseOfTransformers) {
  const std::vector<float> expected = floats_of(kData / GetParam().goldens / "embeddings.f32");
  const size_t width = engine_->pipeline().model().width;
  const auto& prompts = golden_.at("prompts").as_array();
  ASSERT_EQ(expected.size(), prompts.size() * 2 * width);
  auto want = expected.begin();
  for (const auto& prompt : prompts) {
    for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
      const std::vector<float> found =
          engine_->generate({.tokens = ids_of(prompt.at("ids")), .embed = pooling}).embedding;
      ASSERT_EQ(found.size(), width);
      double worst = 0, peak = 0;
      for (const float x : found) {
        worst = std::max(worst, std::abs(static_cast<double>(x) - static_cast<double>(*want)));
        peak = std::max(peak, std::abs(static_cast<double>(*want++)));
      }
      EXPECT_LT(worst / peak, tolerance(GetParam())) << prompt.at("name");
    }
  }
}

// Rounding to 16 bits may change a close choice.
class ExactGolden : public Golden {};

TEST_P(ExactGolden, GreedyTokensAreThoseOfTransformers) {
  for (const auto& prompt : golden_.at("prompts").as_array()) {
    const Result result =
        engine_->generate({.tokens = ids_of(prompt.at("ids")), .max_new_tokens = 64, .ignore_end = true});
    EXPECT_EQ(result.tokens, ids_of(prompt.at("greedy"))) << prompt.at("name");
  }
}

std::vector<Case> embedding_cases() {
  std::vector<Case> list = cases();
  std::erase_if(list, [](const Case& c) { return !std::filesystem::exists(kData / c.goldens / "embeddings.f32"); });
  return list;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Embeddings, ::testing::ValuesIn(embedding_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Checkpoints, Golden, ::testing::ValuesIn(cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Checkpoints, ExactGolden, ::testing::ValuesIn(exact_cases()), test_name);

TEST(SmolLm2, FirstGreedyTokensAreThoseOfTransformers) {
  const auto golden = boost::json::parse(read_file(kData / "smollm2/golden.json"));
  const auto model = test::root() / "models" / std::string(golden.at("file").as_string());
  if (!std::filesystem::exists(model)) GTEST_SKIP() << model << " is not there; scripts/fetch_model.sh fetches it";
  const auto engine = Engine::open({.config = model.string(),
                                    .set = {"quantization.activations=f32", "kv_cache.format=fp32",
                                            "kv_cache.capacity=512", "sampler.chain=[]", "sampler.select=greedy"}});
  for (const auto& prompt : golden.at("prompts").as_array()) {
    const std::vector<int32_t> ids = ids_of(prompt.at("ids"));
    EXPECT_EQ(engine->tokenizer().encode(std::string(prompt.at("text").as_string()), {.parse_special = true}), ids)
        << prompt.at("name");
    const Result result = engine->generate({.tokens = ids, .max_new_tokens = 32, .ignore_end = true});
    EXPECT_EQ(result.tokens, ids_of(prompt.at("greedy"))) << prompt.at("name");
    EXPECT_EQ(result.text, std::string(prompt.at("greedy_text").as_string())) << prompt.at("name");
  }
}

}  // namespace
}  // namespace tenon
