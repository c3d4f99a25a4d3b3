// These tests work out the times of ops from kernels and programs that are made up.
#include "tenon/profiler/op_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tenon/core/error.h"

namespace tenon::profiler {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

KernelRecord kernel(const std::string& name, uint64_t start, uint64_t end, uint64_t node = 0) {
  return {.name = name, .start = start, .end = end, .graph_node = node};
}
KernelRecord tagged(const std::string& name, uint32_t correlation, uint64_t tag) {
  return {.name = name, .start = 100 - correlation, .end = 200, .correlation = correlation, .tag = tag};
}

template <class Call>
std::string failure_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Op 0 launches a, op 1 nothing, op 2 b and c. The steps come out of order.
const KernelNames kNames = {{"a"}, {}, {"b", "c"}};
KernelRecording two_steps() {
  return {.kernels = {kernel("c", 1030, 1060, 3), kernel("a", 1000, 1020, 1), kernel("b", 1015, 1040, 2),
                      kernel("a", 1100, 1125, 1), kernel("c", 1140, 1155, 3), kernel("b", 1120, 1145, 2)}};
}

TEST(KernelsByOp, GoByTagsAndTheOrderOfLaunches) {
  const KernelRecording step{.kernels = {tagged("c", 9, 3), tagged("a", 5, 1), tagged("b", 8, 3)}};
  EXPECT_EQ(kernels_by_op(step, 3), kNames);
}

TEST(KernelsByOp, SayWhatIsWrongWithARecording) {
  EXPECT_THAT(failure_of([] { kernels_by_op({}, 3); }), HasSubstr("recorded no kernel"));
  EXPECT_THAT(failure_of([] { kernels_by_op({.kernels = {tagged("a", 1, 0)}}, 3); }), HasSubstr("tag 0"));
  EXPECT_THAT(failure_of([] { kernels_by_op({.kernels = {tagged("a", 1, 4)}}, 3); }), HasSubstr("tags 1 to 3"));
  EXPECT_THAT(failure_of([] { kernels_by_op({.kernels = {tagged("a", 1, 1)}, .dropped = 7}, 3); }),
              HasSubstr("lost 7 records"));
  EXPECT_THAT(failure_of([] { kernels_by_op({.kernels = {tagged("a", 1, 1)}, .untimed = 1}, 3); }),
              HasSubstr("could not time 1 of 2 kernels"));
}

TEST(PlaceKernels, FindsTheEndOfEveryOp) {
  const std::vector<StepEnds> steps = place_kernels(two_steps(), kNames);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].begin, 1000u);
  EXPECT_THAT(steps[0].ends, ElementsAre(1020, 1020, 1060));
  EXPECT_EQ(steps[1].begin, 1100u);
  EXPECT_THAT(steps[1].ends, ElementsAre(1125, 1125, 1155));
}

TEST(PlaceKernels, GoesByGraphNodesWhereStartsAreOutOfOrder) {
  KernelRecording steps = two_steps();
  std::swap(steps.kernels[0].start, steps.kernels[2].start);
  EXPECT_THAT(place_kernels(steps, kNames)[0].ends, ElementsAre(1020, 1020, 1060));
  for (KernelRecord& k : steps.kernels) k.graph_node = 0;
  EXPECT_THAT(failure_of([&] { place_kernels(steps, kNames); }),
              HasSubstr("kernel 2 of step 1 is c, where b was launched"));
}

TEST(PlaceKernels, RefusesWhatAreNotTheKernelsOfTheOps) {
  KernelRecording other = two_steps();
  other.kernels[4].name = "d";
  EXPECT_THAT(failure_of([&] { place_kernels(other, kNames); }),
              HasSubstr("kernel 3 of step 2 is d, where c was launched"));
  KernelRecording cut = two_steps();
  cut.kernels.pop_back();
  EXPECT_THAT(failure_of([&] { place_kernels(cut, kNames); }), HasSubstr("5 kernels, which are no whole steps of 3"));
  EXPECT_THAT(failure_of([] { place_kernels({}, kNames); }), HasSubstr("recorded no kernel"));
  EXPECT_THAT(failure_of([] { place_kernels(two_steps(), {}); }), HasSubstr("no whole steps of 0"));
}

TEST(SinceLastEnd, AddsUpToTheStep) {
  const OpTimes times = since_last_end(place_kernels(two_steps(), kNames), 1);
  EXPECT_EQ(times.steps, 1u);
  EXPECT_THAT(times.op_us, ElementsAre(DoubleNear(0.025, 1e-9), 0, DoubleNear(0.030, 1e-9)));
  EXPECT_NEAR(times.between_us, 0.040, 1e-9);
  EXPECT_NEAR(times.step_us, 0.095, 1e-9);
}

TEST(SinceLastEnd, IsNeverBelowZeroAndTakesMeans) {
  // The second op ends before the first does; a step begins before the one ahead has ended.
  const std::vector<StepEnds> steps = {{0, {1000, 900}}, {990, {2000, 1500}}, {2000, {4000, 6000}}};
  const OpTimes times = since_last_end(steps, 0);
  EXPECT_EQ(times.steps, 2u);
  EXPECT_THAT(times.op_us, ElementsAre(DoubleNear(1.5, 1e-9), DoubleNear(1.0, 1e-9)));
  EXPECT_NEAR(times.between_us, 0, 1e-9);
  EXPECT_NEAR(times.step_us, 2.5, 1e-9);
}

TEST(SinceLastEnd, NeedsAStepAfterTheFirst) {
  const std::vector<StepEnds> one = {{0, {1}}};
  EXPECT_THAT(failure_of([&] { since_last_end(one, 0); }), HasSubstr("1 steps were recorded; expected more than 1"));
}

ProgramOp op(const std::string& path, const std::string& component, const std::string& name, double read) {
  ProgramOp op;
  op.path = path;
  op.component = component;
  op.name = name;
  op.cost.read[0] = read;
  op.cost.read[2] = 2;
  op.cost.written[1] = 10;
  return op;
}

TEST(GroupOps, JoinsLayersAndSortsByTime) {
  const std::vector<ProgramOp> ops = {op("embedding", "quantization.none", "rows", 1),
                                      op("layers.0.attention", "attention.flash", "attention", 100),
                                      op("layers.0.attention", "kv_cache.static", "append", 7),
                                      op("layers.11.attention", "attention.flash", "attention", 200),
                                      op("layers.11.attention", "kv_cache.static", "append", 7)};
  const OpTimes times{.op_us = {1, 2, 0.5, 4, 0.25}, .step_us = 7.75, .steps = 1};
  const std::vector<OpGroup> groups = group_ops(ops, times, 2, 50);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].path, "layers.*.attention");
  EXPECT_EQ(groups[0].component, "attention.flash");
  EXPECT_EQ(groups[0].calls, 2u);
  EXPECT_NEAR(groups[0].us, 6, 1e-9);
  EXPECT_NEAR(groups[0].bytes, 300 + 2 * (2 * 50 + 10 * 2), 1e-9);
  EXPECT_NEAR(groups[0].gbps(), 540 / 6.0 / 1e3, 1e-9);
  EXPECT_EQ(groups[1].path, "embedding");
  EXPECT_EQ(groups[2].op, "append");
  EXPECT_EQ(OpGroup{}.gbps(), 0);
}

}  // namespace
}  // namespace tenon::profiler
