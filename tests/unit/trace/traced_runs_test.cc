// These tests keep the runs of programs that belong to the steps that are written.
#include "tenon/profiler/traced_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::profiler {
namespace {

using testing::ElementsAre;

std::vector<ProgramOp> ops(size_t count) {
  std::vector<ProgramOp> list(count);
  for (size_t i = 0; i < count; ++i) {
    list[i].path = "layers." + std::to_string(i) + ".mlp";
    list[i].name = "product";
    list[i].layer = int32_t(i);
  }
  return list;
}

KernelRecord kernel(uint64_t start, uint64_t tag) {
  return {.name = "k", .start = start, .end = start + 10, .correlation = 1, .tag = tag};
}

class KeptRuns : public testing::Test {
 protected:
  // Begins a run in a step of its own; the first is launched one by one.
  uint32_t run(uint64_t step) {
    const uint32_t number = runs_.begin(program_, {.step = step, .phase = "decode"});
    if (number == 0) runs_.one_by_one(number);
    return number;
  }
  bool wanted(uint32_t number) const { return runs_.wanted(kernel_tag(number)); }

  const std::vector<ProgramOp> program_ = ops(2);
  TracedRuns runs_{true};
};

TEST_F(KeptRuns, AreThoseOfTheStepsThatAreWritten) {
  for (uint64_t step = 0; step < 6; ++step) run(step);
  EXPECT_TRUE(wanted(5));
  EXPECT_FALSE(runs_.wanted(0));
  runs_.decide(0, false);
  runs_.decide(1, false);
  runs_.decide(2, true);
  runs_.decide(3, true);
  runs_.decide(4, false);
  EXPECT_TRUE(wanted(0));  // this run says whose the kernels of a graph are
  EXPECT_FALSE(wanted(1));
  EXPECT_TRUE(wanted(2));
  EXPECT_FALSE(wanted(4));
  EXPECT_TRUE(wanted(5));  // nobody has decided upon its step
  EXPECT_EQ(runs_.written(), 2u);
  KernelRecording recording;
  for (uint32_t i = 0; i < 6; ++i) {
    for (uint32_t k = 0; k < 2; ++k) {
      recording.kernels.push_back(kernel(100 * i + 20 * k, i == 0 ? kernel_tag(0, k) : kernel_tag(i)));
    }
    recording.others.push_back(
        {.kind = GpuActivity::Kind::kCall, .start = 100 * i, .end = 100 * i, .tag = kernel_tag(i)});
  }
  recording.kernels.push_back(kernel(5000, 0));
  const std::vector<ProgramRun> runs = runs_.take(recording);
  EXPECT_EQ(runs.size(), 3u);
  EXPECT_EQ(recording.kernels.size(), 6u);
  EXPECT_EQ(recording.others.size(), 2u);
  std::vector<std::string> names;
  std::vector<int64_t> begins;
  for (const GpuSlice& slice : gpu_slices(recording, runs)) {
    if (slice.track != GpuSlice::Track::kStream) continue;
    names.push_back(slice.name);
    begins.push_back(slice.begin_ns);
  }
  EXPECT_THAT(names, ElementsAre("layers.0.mlp/product", "layers.1.mlp/product", "layers.0.mlp/product",
                                 "layers.1.mlp/product"));
  EXPECT_THAT(begins, ElementsAre(200, 220, 300, 320));
}

// A step may run several programs, one of them for the step after it.
TEST_F(KeptRuns, ShareTheirStepsFate) {
  run(0);
  run(1);
  run(1);
  run(2);
  runs_.decide(0, false);
  runs_.decide(1, true);
  EXPECT_TRUE(wanted(1));
  EXPECT_TRUE(wanted(2));
  runs_.decide(2, false);
  EXPECT_FALSE(wanted(3));
}

TEST_F(KeptRuns, TakeNoMoreRoomThanTheirWindow) {
  for (uint64_t step = 0; step < 1000; ++step) {
    runs_.one_by_one(run(step));
    if (step >= 8) runs_.decide(step - 8, false);
  }
  EXPECT_EQ(runs_.size(), 8u + 1);
}

TEST_F(KeptRuns, AreRefusedBeyondTheRoomThatThereIs) {
  const std::vector<ProgramOp> large = ops(TracedRuns::kMaxOps / 2);
  for (uint64_t step = 0; step < 4; ++step) {
    runs_.begin(large, {.step = step});
    runs_.decide(step, true);
  }
  EXPECT_EQ(runs_.refused(), 2u);
  EXPECT_EQ(runs_.written(), 4u);
  EXPECT_EQ(runs_.size(), 2u);
}

TEST(AllRuns, AreWantedWhereNoStepsAreKept) {
  const std::vector<ProgramOp> program = ops(1);
  TracedRuns runs(false);
  for (uint64_t step = 0; step < 3; ++step) runs.begin(program, {.step = step});
  KernelRecording recording{.kernels = {kernel(1, kernel_tag(2)), kernel(2, 0)}};
  EXPECT_EQ(runs.take(recording).size(), 3u);
  EXPECT_EQ(recording.kernels.size(), 2u);
  EXPECT_EQ(runs.written(), 3u);
}

}  // namespace
}  // namespace tenon::profiler
