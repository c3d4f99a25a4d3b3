// A scheme's observations of a pipeline's products equal those of a float64 reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "llama_reference.h"
#include "pipeline/read_text.h"
#include "quantization/calibrated/moments.h"
#include "schemes.h"
#include "tenon/core/error.h"

namespace tenon::test {
namespace {

const std::vector<int32_t> kText = {5, 42, 79, 116, 153, 190, 27, 64, 101, 138, 175, 12, 49, 86, 123, 160, 197, 34, 71};

class Observing {
 public:
  Observing(const std::vector<std::string>& matrices, const std::vector<std::string>& set,
            const std::string& scheme = "seen")
      : registry_(schemes()), weights_(open_weights(golden(kTiny))) {
    std::vector<std::string> all = kExact;
    if (!set.empty()) all.erase(all.begin(), all.begin() + 2);  // this drops the scheme
    all.insert(all.end(), set.begin(), set.end());
    RegistrySchemas known(*registry_);
    const PipelineConfig config = resolve(load_config(golden(kTiny), all), known);
    ParamValues defaults(known.schema("quantization", scheme, "cpu"));
    const ComponentConfig observer{"quantization", scheme, {}, std::move(defaults)};
    PipelineOptions options;
    options.observers = {{observer, matrices}};
    options.prefill_rows = options.score_rows = 8;
    pipeline_ = Pipeline::build(config, *registry_, *weights_, options);
    pipeline_->load();
  }
  void read(const std::vector<int32_t>& text) { read_text(*pipeline_, text, {.first = 0, .rows_a_step = 8}, {}); }
  // Sums of |x| by column, and then the number of rows.
  std::vector<double> state(const std::string& matrix) const {
    const std::vector<std::byte> bytes = pipeline_->observed(matrix);
    std::vector<double> sums(bytes.size() / sizeof(double));
    if (!bytes.empty()) std::memcpy(sums.data(), bytes.data(), bytes.size());
    return sums;
  }
  std::vector<std::byte> bytes(const std::string& matrix) const { return pipeline_->observed(matrix); }
  const Weights& weights() const { return *weights_; }
  const Pipeline& pipeline() const { return *pipeline_; }

 private:
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Pipeline> pipeline_;
};

void expect_sums(const std::vector<double>& state, const Rows& x, const std::string& what) {
  const size_t columns = x.front().size();
  ASSERT_EQ(state.size(), columns + 1) << what;
  EXPECT_EQ(state[columns], static_cast<double>(x.size())) << what;
  for (size_t i = 0; i < columns; ++i) {
    double sum = 0;
    for (const auto& row : x) sum += std::abs(row[i]);
    EXPECT_NEAR(state[i], sum, 1e-4 * (1 + sum)) << what << ", column " << i;
  }
}

// There are 19 rows in steps of 8: the last step has rows that are not live.
TEST(Observe, EqualsTheFormulaInFloat64) {
  const std::vector<std::string> matrices = {
      "layers.0.attention.k", "layers.0.attention.o", "layers.0.mlp.up", "layers.0.mlp.down",
      "layers.1.attention.q", "layers.1.mlp.down",    "lm_head"};
  Observing run(matrices, {});
  run.read(kText);
  const auto inputs = LlamaReference(run.weights()).inputs(kText);
  for (const std::string& m : matrices) expect_sums(run.state(m), inputs.at(m), m);
  EXPECT_TRUE(run.state("layers.1.mlp.gate").empty());  // nobody asked for it
}

TEST(Observe, AddsUpOverTexts) {
  Observing once({"layers.1.mlp.down"}, {}), twice({"layers.1.mlp.down"}, {});
  once.read(kText);
  twice.read(kText);
  twice.read(kText);
  const std::vector<double> a = once.state("layers.1.mlp.down"), b = twice.state("layers.1.mlp.down");
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i], 2 * a[i], 1e-9 * a[i]) << i;
}

// GPTQ needs these. `tolerance` is that of a sum, by the sum of its terms' sizes.
void expect_moments(Observing& run, double tolerance) {
  run.read(kText);
  const auto inputs = LlamaReference(run.weights()).inputs(kText);
  for (const std::string m : {"layers.0.attention.q", "layers.1.mlp.down"}) {
    const Rows& x = inputs.at(m);
    const auto columns = static_cast<uint32_t>(x.front().size());
    const std::vector<std::byte> state = run.bytes(m);
    ASSERT_EQ(state.size(), calibrated::moments_bytes(columns)) << m;
    const calibrated::Moments moments(state.data(), columns);
    EXPECT_EQ(moments.rows(), static_cast<double>(x.size())) << m;
    for (uint32_t i = 0; i < columns; ++i) {
      double magnitude = 0;
      for (const auto& row : x) magnitude += std::abs(row[i]);
      EXPECT_NEAR(moments.magnitude(i), magnitude, tolerance * (1 + magnitude)) << m << ", column " << i;
      for (uint32_t j = 0; j < columns; ++j) {
        double sum = 0, size = 1;
        for (const auto& row : x) {
          sum += row[i] * row[j];
          size += std::abs(row[i] * row[j]);
        }
        EXPECT_NEAR(moments.product(i, j), sum, tolerance * size) << m << ", columns " << i << " and " << j;
      }
    }
  }
}

const std::vector<std::string> kMoments = {"layers.0.attention.q", "layers.1.mlp.down"};

TEST(Observe, MomentsEqualTheFormulaInFloat64) {
  Observing run(kMoments, {}, "gptq");
  expect_moments(run, 1e-4);
}

// x itself is less exact there.
TEST(Observe, MomentsOfAGpuEqualTheFormulaInFloat64) {
  if (const std::string missing = no_gpu(); !missing.empty()) GTEST_SKIP() << missing;
  Observing run(kMoments, {"quantization.use=none", "quantization.dtype=fp32", "device.use=cuda"}, "gptq");
  expect_moments(run, 5e-3);
}

// A scheme that would take the norm into its product leaves it visible where somebody looks, and nowhere else.
TEST(Observe, MakesTheOpsBeforeTheProductVisible) {
  const Observing run({"layers.0.attention.q"}, {"quantization.use=int8wo"});
  std::string seen, other;
  for (const Decision& d : run.pipeline().decisions()) {
    if (d.path == "layers.0.attention.qkv") seen = d.text;
    if (d.path == "layers.1.attention.qkv") other = d.text;
  }
  EXPECT_THAT(seen, testing::HasSubstr("ops of their own: rms_norm"));
  EXPECT_THAT(other, testing::HasSubstr("does rms_norm"));
}

TEST(Observe, RefusesASchemeThatDoesNotLook) {
  const auto registry = schemes();
  const auto weights = open_weights(golden(kTiny));
  RegistrySchemas known(*registry);
  const PipelineConfig config = resolve(load_config(golden(kTiny), kExact), known);
  PipelineOptions options;
  options.observers = {{config.quantization, {"layers.0.attention.q"}}};
  try {
    Pipeline::build(config, *registry, *weights, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("quantization.none has no observe()"));
  }
}

}  // namespace
}  // namespace tenon::test
