// With device.index, everything that a pipeline does happens on its GPU, whatever thread drives it and whatever the
// thread did before.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <thread>

#include "support/pipelines.h"

namespace tenon::test {
namespace {

class TwoGpus : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    if (count < 2) GTEST_SKIP() << "needs two GPUs; this machine has " << count;
    expected_ = on(0)->generate(request()).tokens;
  }
  static std::unique_ptr<Engine> on(int index) {
    const std::string execution = std::string("pipeline.execution=") + GetParam();
    return open(kTiny, "cuda",
                {"kv_cache.capacity=128", "sampler.chain=[]", "sampler.select=greedy", "quantization.use=int8wo",
                 execution, "device.index=" + std::to_string(index)});
  }
  static int gpu_of(const void* p) {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, p), cudaSuccess);
    return attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
  }

  std::vector<int32_t> expected_;
};

TEST_P(TwoGpus, APipelineLivesOnItsOwn) {
  const auto engine = on(1);
  EXPECT_EQ(engine->generate(request()).tokens, expected_);
  EXPECT_EQ(engine->pipeline().device().ordinal, 1u);
  for (const Program* program : engine->pipeline().programs()) {
    for (tenon_tid id = 1; id < program->tensor_count(); ++id) {
      const bool host = program->tensor(id).view.space == TENON_SPACE_HOST;
      if (program->tensor(id).extent == 0 || program->address(id) == nullptr) continue;
      ASSERT_EQ(gpu_of(program->address(id)), host ? -1 : 1) << program->tensor(id).name;
    }
  }
}

TEST_P(TwoGpus, AnyThreadMayDriveAPipeline) {
  const auto engine = on(1);
  for (const bool loaded : {false, true}) {
    std::vector<int32_t> tokens;
    std::thread([&] { tokens = engine->generate(request()).tokens; }).join();
    EXPECT_EQ(tokens, expected_) << (loaded ? "once loaded" : "which loads it");
  }
  std::unique_ptr<Engine> dies = on(1);
  dies->load();
  std::thread([&] { dies.reset(); }).join();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Between any two steps of the one, the thread steps the other.
TEST_P(TwoGpus, OneThreadDrivesTwoPipelinesByTurns) {
  const auto first = on(0), second = on(1);
  uint32_t turns = 0;
  Request outer = request(), inner = request(4);
  outer.on_token = [&](const Token&) {
    const std::vector<int32_t> tokens = second->generate(inner).tokens;
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected_.begin()));
    ++turns;
    return true;
  };
  EXPECT_EQ(first->generate(outer).tokens, expected_);
  EXPECT_EQ(turns, outer.max_new_tokens);
}

TEST_P(TwoGpus, TwoThreadsDriveOneEach) {
  std::vector<int32_t> tokens[2];
  const auto drive = [&](int index) {
    const auto engine = on(index);
    for (int i = 0; i < 3; ++i) tokens[index] = engine->generate(request()).tokens;
  };
  std::thread first(drive, 0), second(drive, 1);
  first.join();
  second.join();
  EXPECT_EQ(tokens[0], expected_);
  EXPECT_EQ(tokens[1], expected_);
}

INSTANTIATE_TEST_SUITE_P(In, TwoGpus, testing::Values("auto", "recorded"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tenon::test
