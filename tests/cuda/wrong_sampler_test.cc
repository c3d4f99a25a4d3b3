// A sampler that leaves something wrong on the GPU ends the request with an error that names it, and nobody reads or
// writes out of bounds for it: the context is as good as before. tests/unit/engine/component_errors_test.cc does the
// same on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/pipelines.h"
#include "support/wrong_candidates.h"

namespace tenon::test {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Engine> open_with(const std::string& chain, Settings more) {
  EngineOptions options;
  options.config = root() / "tests/golden/data" / kTiny;
  options.set = {"device.use=cuda", "kv_cache.capacity=256", "sampler.chain=[" + chain + "]"};
  options.set.insert(options.set.end(), more.begin(), more.end());
  options.plugin_dirs = {plugins(), build() / "tests/cuda/wrong_samplers"};
  return Engine::open(options);
}

std::string error_of(Engine& engine) {
  Request r{.tokens = {3, 4, 5, 4, 5}, .max_new_tokens = 8, .ignore_end = true};
  try {
    static_cast<void>(engine.generate(r));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kPlugin) << e.what();
    return e.what();
  }
  return "no error";
}

std::vector<Settings> modes() {
  return {{},
          {"pipeline.execution=per_op"},
          {"pipeline.execution=recorded"},
          {"pipeline.execution=graph"},
          {"draft.use=ngram"},
          {"draft.pipeline.tokens=2"}};
}

// Returns processors that one op cannot look at all.
std::string many_after() {
  std::string chain;
  for (int i = 0; i < 8; ++i) chain += ", {use = \"temperature\", value = 0.9}";
  return chain;
}

class CudaWrongSampler : public ::testing::TestWithParam<Wrong> {
 protected:
  void SetUp() override {
    if (const std::string problem = no_gpu(); !problem.empty()) GTEST_SKIP() << problem;
  }
};

// Samplers come after that look up their state by the ids, walk as many as are counted, or sort them.
TEST_P(CudaWrongSampler, IsNamed) {
  const std::string bad = std::string("{use = \"leaves_wrong_values\", what = \"") + GetParam().what + "\"}";
  const std::string before = "{use = \"temperature\", value = 0.5}, ";
  for (const std::string& chain :
       {bad, before + bad, bad + ", {use = \"repetition_penalty\"}, {use = \"logit_bias\"}, {use = \"top_p\", p = 0.9}",
        before + bad + ", {use = \"top_k\", k = 3}, {use = \"min_p\"}, {use = \"frequency_presence\"}",
        bad + many_after()}) {
    for (const Settings& mode : modes()) {
      SCOPED_TRACE(chain + ::testing::PrintToString(mode));
      const auto engine = open_with(chain, mode);
      for (int again = 0; again < 2; ++again) {
        EXPECT_THAT(error_of(*engine), HasSubstr(std::string("sampler.leaves_wrong_values: ") + GetParam().message +
                                                 ", after 5 tokens, from logits that are finite"));
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Wrong>& info) {
  return info.param.what;
}
INSTANTIATE_TEST_SUITE_P(All, CudaWrongSampler, ::testing::ValuesIn(kWrongCandidates), name_of);
INSTANTIATE_TEST_SUITE_P(NotFinite, CudaWrongSampler,
                         ::testing::Values(Wrong{"nan", "leaves nan among the candidates"},
                                           Wrong{"dense_nan", "leaves nan among the candidates"}),
                         name_of);

class CudaSampler : public CudaWrongSampler {};

INSTANTIATE_TEST_SUITE_P(One, CudaSampler, ::testing::Values(Wrong{"nothing", ""}));

TEST_P(CudaSampler, ThatLeavesNothingWrongIsNotNamed) {
  for (const Settings& mode : modes()) {
    EXPECT_EQ(error_of(*open_with("{use = \"leaves_wrong_values\"}", mode)), "no error");
  }
}

// The step after may be under way already, with the token looked up.
TEST_P(CudaSampler, ThatChoosesNoTokenIsNamed) {
  for (const char* token : {"-1", "260", "1073741824"}) {
    for (const std::string& before : {std::string(), std::string("{use = \"repetition_penalty\"}, ")}) {
      for (const Settings& mode : modes()) {
        SCOPED_TRACE(token + before + ::testing::PrintToString(mode));
        const auto engine = open_with(before + "{use = \"chooses_wrong\", token = " + token + "}", mode);
        for (int again = 0; again < 2; ++again) {
          EXPECT_THAT(error_of(*engine), HasSubstr(std::string("sampler.chooses_wrong: chooses token ") + token +
                                                   ", outside of the vocabulary of 260"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenon::test
