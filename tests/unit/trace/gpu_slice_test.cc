#include "tenon/profiler/gpu_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "temp_folder.h"
#include "tenon/profiler/perfetto_writer.h"
#include "tenon/profiler/trace_check.h"

namespace tenon::profiler {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<ProgramOp> ops() {
  std::vector<ProgramOp> list(2);
  list[0].path = "layers.0.mlp", list[0].name = "product", list[0].component = "quantization.none", list[0].layer = 0;
  list[1].path = "sampler", list[1].name = "draw", list[1].component = "sampler.categorical";
  return list;
}

KernelRecord kernel(const std::string& name, uint64_t start, uint64_t tag, uint32_t correlation = 1) {
  return {.name = name, .start = start, .end = start + 10, .stream = 7, .correlation = correlation, .tag = tag};
}

std::vector<std::string> names(std::vector<GpuSlice> slices) {
  std::ranges::sort(slices, {}, &GpuSlice::begin_ns);
  std::vector<std::string> list;
  for (const GpuSlice& s : slices) list.push_back(s.name);
  return list;
}

// The first run is launched one by one, the second as a graph.
TEST(NameKernels, LearnsFromOneRunWhatAnotherIs) {
  const std::vector<ProgramOp> program = ops();
  const std::vector<ProgramRun> runs = {{program, true}, {program, false}};
  const KernelRecording recording{.kernels = {kernel("b", 130, kernel_tag(1)), kernel("a", 125, kernel_tag(1)),
                                              kernel("c", 140, kernel_tag(1)), kernel("c", 120, kernel_tag(0, 1), 5),
                                              kernel("b", 110, kernel_tag(0, 0), 4),
                                              kernel("a", 100, kernel_tag(0, 0), 3)}};
  const std::vector<GpuSlice> slices = name_kernels(recording, runs);
  EXPECT_THAT(names(slices), ElementsAre("layers.0.mlp/product", "layers.0.mlp/product", "sampler/draw",
                                         "layers.0.mlp/product", "layers.0.mlp/product", "sampler/draw"));
}

TEST(NameKernels, KeepsTheNamesOfKernelsThatItCannotTell) {
  const std::vector<ProgramOp> program = ops(), other = ops();
  const std::vector<ProgramRun> runs = {{program, true}, {program, false}, {other, false}};
  const KernelRecording recording{.kernels = {kernel("a", 100, kernel_tag(0, 0)), kernel("_Z1xi", 110, kernel_tag(1)),
                                              kernel("a", 120, kernel_tag(2)), kernel("y", 130, 0),
                                              kernel("z", 140, kernel_tag(9))}};
  EXPECT_THAT(names(name_kernels(recording, runs)), ElementsAre("layers.0.mlp/product", "x(int)", "a", "y", "z"));
}

TEST(GpuSlices, LieOnTracksOfTheirStream) {
  const TempFolder folder;
  const std::string path = folder.file("gpu.json");
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t start = static_cast<uint64_t>(now.tv_sec + 1) * 1'000'000'000;
  const auto kernels = [&] {
    const std::vector<ProgramOp> program = ops();
    KernelRecording recording;
    for (uint64_t i = 0; i < 6; ++i) recording.kernels.push_back(kernel("k", start + 7 * i, kernel_tag(0, i % 2)));
    recording.kernels.push_back(kernel("early", 5, 0));
    return GpuSlices{name_kernels(recording, std::vector<ProgramRun>{{program, true}}), 2};
  };
  trace::Recorder recorder({.drain_interval = std::chrono::milliseconds(0)},
                           make_perfetto_writer({.path = path, .mode = "node", .kernels = kernels}));
  ASSERT_TRUE(recorder.stop().ok());
  const CheckReport report = check_trace(path);
  ASSERT_EQ(report.findings.size(), 1u);  // and no overlap
  EXPECT_EQ(report.findings[0].rule, "dropped");
  EXPECT_THAT(report.findings[0].found, HasSubstr("3 records"));
  EXPECT_EQ(report.slices, 6u);
  EXPECT_THAT(
      folder.bytes(path),
      AllOf(HasSubstr(R"("pid":100,"name":"process_name","args":{"name":"GPU 0"})"),
            HasSubstr(R"("tid":1007,"name":"thread_name","args":{"name":"stream 7"})"),
            HasSubstr(R"("args":{"name":"stream 7, overlapping"})"),
            HasSubstr(R"("cat":"kernel","name":"layers.0.mlp/product","args":{"kernel":"k","device":0,"stream":7)"),
            HasSubstr(R"("component":"quantization.none","op":"product","layer":0})"), Not(HasSubstr("early"))));
}

}  // namespace
}  // namespace tenon::profiler
