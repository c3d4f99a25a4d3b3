// A kernel that traps takes the process's context with it, so each of these runs in a process of its own.
#include <gtest/gtest.h>

#include <iostream>

#include "support/pipelines.h"

namespace tenon::test {
namespace {

// Ends the process with what is said of the kernel that traps.
[[noreturn]] void run_into_trap(const std::string& execution) {
  EngineOptions options;
  options.config = root() / "tests/golden/data" / kTiny;
  options.set = {"device.use=cuda", "kv_cache.capacity=128", "sampler.chain=[]", "sampler.select=traps",
                 "pipeline.execution=" + execution};
  options.plugin_dirs = {plugins(), build() / "tests/cuda/traps"};
  try {
    const auto engine = Engine::open(options);
    static_cast<void>(engine->generate(request()));
  } catch (const Error& e) {
    std::cerr << e.what() << '\n';
    std::exit(1);
  }
  std::exit(0);
}

class Trap : public testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = no_gpu();
    if (!problem.empty()) GTEST_SKIP() << problem;
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

using TrapDeathTest = Trap;

TEST_F(TrapDeathTest, IsOfAnOpAndItsPlugin) {
  EXPECT_EXIT(run_into_trap("per_op"), testing::ExitedWithCode(1),
              "sampler: sampler.traps failed in trap: a kernel failed on device.cuda: ");
}

TEST_F(TrapDeathTest, IsOfAComponentOfTheStep) {
  for (const char* execution : {"recorded", "graph"}) {
    EXPECT_EXIT(run_into_trap(execution), testing::ExitedWithCode(1),
                "a kernel failed on device.cuda: .* it is of .*sampler.traps.*per_op");
  }
}

}  // namespace
}  // namespace tenon::test
