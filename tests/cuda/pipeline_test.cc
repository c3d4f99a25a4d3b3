// Whole pipelines on a GPU against the same ones on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/core/engine.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

using Settings = std::vector<std::string>;

const Settings kExact = {"quantization.use=none", "quantization.dtype=fp32", "kv_cache.format=fp32",
                         "kv_cache.capacity=128", "sampler.chain=[]",        "sampler.select=greedy"};

std::unique_ptr<Engine> open(const std::string& model, const std::string& device, Settings settings,
                             uint32_t sequences = 0) {
  settings.push_back("device.use=" + device);
  EngineOptions options;
  options.config = std::string(TENON_SOURCE_DIR "/tests/golden/data/") + model;
  options.set = settings;
  options.plugin_dirs = {TENON_BUILD_DIR "/lib/tenon/plugins"};
  options.sequences = sequences;
  return Engine::open(options);
}

Request request(uint32_t tokens = 32) {
  Request r;
  for (int32_t i = 0; i < 21; ++i) r.tokens.push_back((i * 37 + 5) % 200 + 3);
  r.max_new_tokens = tokens;
  r.ignore_end = true;
  return r;
}

std::string no_gpu() {
  try {
    open("tiny-gqa-untied", "cuda", kExact);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

class CudaPipeline : public testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = no_gpu();
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
};

TEST(CudaDevice, IsThereOrSaysWhatIsMissing) {
  const std::string problem = no_gpu();
  if (problem.empty()) return;
  EXPECT_THAT(problem, testing::AnyOf(testing::HasSubstr("no usable NVIDIA GPU"), testing::HasSubstr("libcudart"),
                                      testing::HasSubstr("no device named")));
}

TEST_F(CudaPipeline, GivesTheTokensAndLogitsOfTheCpu) {
  for (const char* model : {"tiny-gqa-untied", "tiny-linear-scaling", "tiny-llama3-scaling"}) {
    Request r = request();
    r.logprobs = true;
    const Result cpu = open(model, "cpu", kExact)->generate(r), gpu = open(model, "cuda", kExact)->generate(r);
    EXPECT_EQ(gpu.tokens, cpu.tokens) << model;
    ASSERT_EQ(gpu.logprobs.size(), cpu.logprobs.size());
    for (size_t i = 0; i < cpu.logprobs.size(); ++i) {
      EXPECT_NEAR(gpu.logprobs[i].value, cpu.logprobs[i].value, 1e-3) << model << " token " << i;
    }
  }
}

TEST_F(CudaPipeline, GivesTheSameTokensInEveryMode) {
  Settings sampled = {"quantization.use=int8wo", "kv_cache.capacity=128"};
  std::vector<std::vector<int32_t>> tokens;
  for (const char* mode : {"per_op", "recorded", "graph", "auto"}) {
    Settings settings = sampled;
    settings.push_back(std::string("pipeline.execution=") + mode);
    const auto engine = open("tiny-gqa-untied", "cuda", settings);
    tokens.push_back(engine->generate(request()).tokens);
    tokens.push_back(engine->generate(request()).tokens);  // on graphs that are there already
  }
  for (const auto& t : tokens) EXPECT_EQ(t, tokens.front());
}

TEST_F(CudaPipeline, SequencesInStepGiveWhatEachGivesAlone) {
  Settings batch = kExact;
  batch.push_back("scheduler.use=lockstep");
  const auto engine = open("tiny-gqa-untied", "cuda", batch, 3);
  std::vector<Request> requests(3, request(20));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].tokens.resize(7 + 5 * i);
  const std::vector<Result> together = engine->generate(requests);
  const auto alone = open("tiny-gqa-untied", "cuda", kExact);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone->generate(requests[i]).tokens) << "sequence " << i;
  }
}

TEST_F(CudaPipeline, AStopInTheMiddleLeavesTheNextRequestUntouched) {
  const auto engine = open("tiny-gqa-untied", "cuda", kExact);
  const Result whole = engine->generate(request());
  Request cut = request();
  uint32_t seen = 0;
  cut.on_token = [&](const Token&) { return ++seen < 5; };
  EXPECT_EQ(engine->generate(cut).finish, FinishReason::kCallback);
  EXPECT_EQ(engine->generate(request()).tokens, whole.tokens);
}

TEST_F(CudaPipeline, AllocatesWhatThePlanSays) {
  const auto engine = open("tiny-gqa-untied", "cuda", kExact);
  EXPECT_EQ(engine->pipeline().high_water(), 0u);
  static_cast<void>(engine->generate(request()));
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  EXPECT_EQ(engine->pipeline().allocated(), engine->pipeline().plan().resident());
}

}  // namespace
}  // namespace tenon
