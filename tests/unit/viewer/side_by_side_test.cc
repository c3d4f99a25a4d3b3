// Two traces stand on one time axis: this tests what lies over what, and what is the same.
#include "model/side_by_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_trace.h"

namespace tenon::view {
namespace {

using testing::Pair;

// Makes `prompts` steps of 1000 us and decode steps of `decode_us`, 10 us between them, from `at` on; each has two
// layers of an operation that takes a tenth of the step, the second time two kernels of it.
TraceFile run_of(int at, int prompts, int decodes, int decode_us) {
  std::string text = "[" + event({"before", "user_annotation", 7, 0, 1});
  for (int i = 0; i < prompts + decodes; ++i) {
    const int length = i < prompts ? 1000 : decode_us;
    text += event({"ProfilerStep#" + std::to_string(i), "user_annotation", 7, at, length,
                   i < prompts ? R"("phase":"prefill")" : R"("phase":"decode")"});
    text += event({i < prompts ? "prefill" : "decode", "user_annotation", 7, at, length - 1});
    for (int layer = 0; layer < 2; ++layer) {
      const int begin = at + layer * length / 2;
      text += event({"layers." + std::to_string(layer) + ".mlp", "cpu_op", 7, begin, length / 10,
                     op_args("quantization.gguf", "gemv", layer, 1)});
      text += event({"layers." + std::to_string(layer) + ".mlp", "cpu_op", 7, begin + length / 10, length / 10,
                     op_args("quantization.gguf", "gemv", layer, 1)});
      text += event({"layers." + std::to_string(layer) + ".mlp", "cpu_op", 7, begin + length / 5, length / 10,
                     op_args("quantization.gguf", "rotate", layer, 1)});
    }
    at += length + 10;
  }
  text.resize(text.size() - 2);
  return profiler::read_trace_bytes(text + ']', "run.json");
}

struct Two {
  Two(TraceFile first, TraceFile second) : a(std::move(first)), b(std::move(second)) {}
  TraceFile a, b;
  Analysis of_a = analyse(a), of_b = analyse(b);
  SideBySide pair{{&a, &of_a}, {&b, &of_b}};

  uint32_t find(const TraceFile& file, std::string_view name, int64_t begin_ns) const {
    for (uint32_t i = 0; i < file.slices.size(); ++i) {
      if (file.name(file.slices[i]) == name && file.slices[i].begin_ns == begin_ns) return i;
    }
    return kNoIndex;
  }
};

TEST(ViewSideBySide, TheFirstDecodeStepsLieOverOneAnother) {
  Two two(run_of(100, 1, 5, 100), run_of(50, 3, 4, 200));
  EXPECT_EQ(two.pair.aligned(), 0);
  EXPECT_EQ(two.pair.origin_ns(0), 1'110'000);
  EXPECT_EQ(two.pair.origin_ns(1), 50'000 + 3 * 1'010'000);
  EXPECT_THAT(two.pair.steps(), Pair(-1, 3)) << "which both have";
}

TEST(ViewSideBySide, AStepCanBeChosen) {
  Two two(run_of(100, 1, 5, 100), run_of(50, 3, 4, 200));
  two.pair.align(2);
  EXPECT_EQ(two.pair.origin_ns(0), 1'110'000 + 2 * 110'000);
  EXPECT_EQ(two.pair.origin_ns(1), 3'080'000 + 2 * 210'000);
  two.pair.align(-1);
  EXPECT_EQ(two.pair.origin_ns(0), 100'000);
  EXPECT_EQ(two.pair.origin_ns(1), 50'000 + 2 * 1'010'000);
  two.pair.align(99);
  EXPECT_EQ(two.pair.aligned(), 3);
}

TEST(ViewSideBySide, OneRangeShowsTheStepOfBothOrAllOfBoth) {
  Two two(run_of(100, 1, 5, 100), run_of(50, 3, 4, 200));
  const auto [from, to] = two.pair.step_range();
  EXPECT_LT(from, 0);
  EXPECT_GT(to, 200'000) << "the longer one's";
  EXPECT_LT(to, 300'000);
  const auto [first, last] = two.pair.whole_range();
  EXPECT_LE(first, -3'080'000);
  EXPECT_GE(last, static_cast<double>(two.b.end_ns) - 3'080'000);
  EXPECT_GE(last, static_cast<double>(two.a.end_ns) - 1'110'000);
}

TEST(ViewSideBySide, WithoutStepsTheBeginsLieOverOneAnother) {
  Two two(run_of(100, 1, 5, 100), profiler::read_trace_bytes(R"([{"ph":"X","pid":1,"tid":1,"ts":9,"dur":1}])", "bare"));
  EXPECT_EQ(two.pair.origin_ns(0), 0);
  EXPECT_EQ(two.pair.origin_ns(1), 0);
  two.pair.align(1);
  EXPECT_EQ(two.pair.aligned(), 0);
  EXPECT_EQ(two.pair.counterpart(0, 0), kNoIndex);
  EXPECT_EQ(two.pair.counterpart(1, 0), kNoIndex);
}

TEST(ViewSideBySide, AnOperationIsThatOfTheSameLayerInTheSameStep) {
  const Two two(run_of(100, 1, 5, 100), run_of(50, 3, 4, 200));
  const int64_t step_a = 1'110'000 + 110'000, step_b = 3'080'000 + 210'000;  // the second decode steps
  const auto same = [&](std::string_view name, int64_t a_us, int64_t b_us) {
    const uint32_t a = two.find(two.a, name, step_a + a_us * 1000), b = two.find(two.b, name, step_b + b_us * 1000);
    ASSERT_NE(a, kNoIndex);
    ASSERT_NE(b, kNoIndex);
    EXPECT_EQ(two.pair.counterpart(0, a), b) << name << ' ' << a_us;
    EXPECT_EQ(two.pair.counterpart(1, b), a) << name << ' ' << b_us;
  };
  same("layers.0.mlp", 0, 0);
  same("layers.0.mlp", 10, 20);  // the second of that name
  same("layers.0.mlp", 20, 40);  // another operation of that name
  same("layers.1.mlp", 60, 120);
  same("decode", 0, 0);  // no operation
  const uint32_t step = two.find(two.a, "ProfilerStep#2", step_a);
  EXPECT_EQ(two.pair.counterpart(0, step), two.find(two.b, "ProfilerStep#4", step_b)) << "other numbers, the same step";
  EXPECT_EQ(two.pair.counterpart(0, two.find(two.a, "before", 0)), kNoIndex);
  EXPECT_EQ(two.pair.counterpart(0, two.find(two.a, "layers.0.mlp", 1'110'000 + 4 * 110'000)), kNoIndex)
      << "B has no such step";
}

TEST(ViewSideBySide, KernelsAreOfTheStepThatTheyName) {
  const auto run = [](int later_us) {
    std::string text = "[";
    for (int i = 0; i < 3; ++i) {
      text += event({"ProfilerStep#" + std::to_string(i), "user_annotation", 7, 100 * i, 90, R"("phase":"decode")"});
      text += event(
          {"layers.0.mlp/gemv", "kernel", 1007, 100 * i + later_us, 20, R"("op":"gemv","step":)" + std::to_string(i)});
    }
    text.resize(text.size() - 2);
    return profiler::read_trace_bytes(text + ']', "kernels.json");
  };
  const Two two(run(10), run(130));
  EXPECT_EQ(two.pair.counterpart(0, two.find(two.a, "layers.0.mlp/gemv", 110'000)),
            two.find(two.b, "layers.0.mlp/gemv", 230'000));
}

TEST(ViewSideBySide, PathsMatchWhereverTheOperationIsNamed) {
  const TraceFile cpu = run_of(0, 1, 1, 100);
  const TraceFile gpu = profiler::read_trace_bytes(
      '[' + event({"layers.1.mlp/gemv", "kernel", 7, 0, 1}) + R"({"ph":"M","pid":1,"name":"process_name","args":{}}])",
      "gpu.json");
  EXPECT_EQ(path_of(gpu, gpu.slices[0]), "layers.1.mlp/gemv");
  const auto count = [&](const std::string& path) {
    const PathMatch match(cpu, path);
    return std::ranges::count_if(cpu.slices, match);
  };
  EXPECT_EQ(count(path_of(gpu, gpu.slices[0])), 4);
  EXPECT_EQ(count("layers.*.mlp/gemv"), 8);
  EXPECT_EQ(count("layers.*.mlp/rotate"), 4);
  EXPECT_EQ(count("ProfilerStep#*"), 2);
  EXPECT_EQ(count("absent/gemv"), 0);
  EXPECT_EQ(count("layers.1.mlp/absent"), 0);
}

}  // namespace
}  // namespace tenon::view
