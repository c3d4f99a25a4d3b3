// A model that is built in parts, each fed with what left the one before it, gives the logits of the whole to the bit.
#include <gtest/gtest.h>

#include "pipeline/read_text.h"
#include "schemes.h"
#include "tenon/core/module.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/weights.h"
#include "weights/expect_error.h"

namespace tenon::test {
namespace {

using tenon::testing::expect_error;
using Floats = std::vector<float>;

constexpr uint32_t kTokens = 40, kStep = 16;

std::vector<int32_t> tokens() {
  std::vector<int32_t> all;
  for (uint32_t i = 0; i < kTokens; ++i) all.push_back(static_cast<int32_t>(i * 37 + 5) % 200 + 3);
  return all;
}

class Parts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    RegistrySchemas schemas(*registry_);
    config_ = resolve(load_config("", kExact), schemas, ModelPath::kOptional);
  }
  std::unique_ptr<Pipeline> build(const std::optional<LayerRange>& range) {
    PipelineOptions options;
    options.range = range;
    options.prefill_rows = options.score_rows = kStep;
    return Pipeline::build(config_, *registry_, *weights_, options);
  }
  // Returns what comes out for all rows, one after the other, and how wide a row is.
  Floats run(const std::optional<LayerRange>& range, const Floats& rows = {}) {
    const std::unique_ptr<Pipeline> pipeline = build(range);
    pipeline->load();
    Floats out;
    read_text(*pipeline, tokens(), {.first = 0, .rows_a_step = kStep, .handed_in = rows},
              [&](uint32_t, std::span<const float> row) { out.insert(out.end(), row.begin(), row.end()); });
    EXPECT_EQ(out.size(), uint64_t{kTokens} * pipeline->out_columns());
    EXPECT_EQ(pipeline->has_head(), !range || range->head);
    EXPECT_EQ(pipeline->out_columns(), pipeline->has_head() ? pipeline->model().vocab : pipeline->model().width);
    return out;
  }

  const std::unique_ptr<Registry> registry_ = schemes();
  const std::unique_ptr<Weights> weights_ = open_weights(golden(GetParam()));
  PipelineConfig config_;
};

TEST_P(Parts, GiveTheLogitsOfTheWhole) {
  const Floats whole = run({});
  const uint32_t layers = model_kind_for(*weights_)->describe(*weights_).layers;
  Floats rows = run(LayerRange{.first = 0, .layers = 0, .embeds = true, .head = false});
  for (uint32_t l = 0; l < layers; ++l)
    rows = run(LayerRange{.first = l, .layers = 1, .embeds = false, .head = false}, rows);
  EXPECT_EQ(run(LayerRange{.first = layers, .layers = 0, .embeds = false, .head = true}, rows), whole);
}

TEST_P(Parts, HoldTheirOwnMatricesAlone) {
  const uint32_t layers = model_kind_for(*weights_)->describe(*weights_).layers;
  const uint64_t whole = build({})->weight_bytes();
  uint64_t sum = 0;
  for (uint32_t l = 0; l < layers; ++l) {
    const uint64_t bytes = build(LayerRange{.first = l, .layers = 1, .embeds = false, .head = false})->weight_bytes();
    EXPECT_GT(bytes, 0U);
    sum += bytes;
  }
  EXPECT_EQ(build(LayerRange{.first = 0, .layers = layers, .embeds = false, .head = false})->weight_bytes(), sum);
  EXPECT_EQ(sum + build(LayerRange{.first = layers, .layers = 0, .embeds = true, .head = true})->weight_bytes(), whole);
}

INSTANTIATE_TEST_SUITE_P(Families, Parts,
                         ::testing::Values("tiny-gqa-untied", "tiny-mha-tied", "tiny-gemma2", "tiny-gemma3",
                                           "tiny-granite", "tiny-mistral", "tiny-mixtral", "tiny-gpt-oss", "tiny-olmo2",
                                           "tiny-olmoe", "tiny-phi3", "tiny-qwen3-moe", "tiny-smollm3",
                                           "tiny-stablelm-parallel", "tiny-starcoder2", "tiny-gqa-untied.gguf"),
                         [](const auto& of) {
                           std::string name = of.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

using PartErrors = Parts;

TEST_P(PartErrors, LayersThatTheModelHasNotAreRefused) {
  expect_error(ErrorCode::kConfig, {"found 9", "the model has 2 layers"},
               [&] { build(LayerRange{.first = 8, .layers = 1, .embeds = false, .head = false}); });
}

INSTANTIATE_TEST_SUITE_P(Tiny, PartErrors, ::testing::Values("tiny-gqa-untied"));

}  // namespace
}  // namespace tenon::test
