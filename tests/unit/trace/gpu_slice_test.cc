// These tests give kernels to ops and steps, from records that are made up.
#include "tenon/profiler/gpu_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "temp_folder.h"
#include "tenon/profiler/perfetto_writer.h"
#include "tenon/profiler/trace_check.h"
#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<ProgramOp> ops() {
  std::vector<ProgramOp> list(2);
  list[0].path = "layers.0.mlp";
  list[0].name = "product";
  list[0].component = "quantization.none";
  list[0].layer = 0;
  list[1].path = "sampler";
  list[1].name = "draw";
  list[1].component = "sampler.categorical";
  return list;
}

KernelRecord kernel(const std::string& name, uint64_t start, uint64_t tag, uint32_t correlation = 1) {
  return {.name = name, .start = start, .end = start + 10, .stream = 7, .correlation = correlation, .tag = tag};
}

std::vector<GpuSlice> placed(std::vector<GpuSlice> slices, GpuSlice::Track track) {
  std::erase_if(slices, [&](const GpuSlice& s) { return s.track != track; });
  std::ranges::stable_sort(slices, {}, &GpuSlice::begin_ns);
  return slices;
}

std::vector<std::string> names(const std::vector<GpuSlice>& slices, GpuSlice::Track track = GpuSlice::Track::kStream) {
  std::vector<std::string> list;
  for (const GpuSlice& s : placed(slices, track)) list.push_back(s.name);
  return list;
}

std::string text_of(const GpuSlice& slice, const std::string& name) {
  for (const trace::Arg& arg : slice.args) {
    if (arg.name != name) continue;
    if (const auto* natural = std::get_if<uint64_t>(&arg.value)) return std::to_string(*natural);
    if (const auto* real = std::get_if<double>(&arg.value)) return std::to_string(*real);
    if (const auto* text = std::get_if<std::string>(&arg.value)) return *text;
  }
  return "none";
}

// The first run is launched one by one, the second as a graph.
TEST(NameKernels, LearnsFromOneRunWhatAnotherIs) {
  const std::vector<ProgramOp> program = ops();
  const std::vector<ProgramRun> runs = {{program, true}, {program, false}};
  const KernelRecording recording{.kernels = {kernel("b", 130, kernel_tag(1)), kernel("a", 125, kernel_tag(1)),
                                              kernel("c", 140, kernel_tag(1)), kernel("c", 120, kernel_tag(0, 1), 5),
                                              kernel("b", 110, kernel_tag(0, 0), 4),
                                              kernel("a", 100, kernel_tag(0, 0), 3)}};
  const std::vector<GpuSlice> slices = gpu_slices(recording, runs);
  EXPECT_THAT(names(slices), ElementsAre("layers.0.mlp/product", "layers.0.mlp/product", "sampler/draw",
                                         "layers.0.mlp/product", "layers.0.mlp/product", "sampler/draw"));
}

TEST(NameKernels, KeepsTheNamesOfKernelsThatItCannotTell) {
  const std::vector<ProgramOp> program = ops(), other = ops();
  const std::vector<ProgramRun> runs = {{program, true}, {program, false}, {other, false}};
  const KernelRecording recording{.kernels = {kernel("a", 100, kernel_tag(0, 0)), kernel("_Z1xi", 110, kernel_tag(1)),
                                              kernel("a", 120, kernel_tag(2)), kernel("y", 130, 0),
                                              kernel("z", 140, kernel_tag(9))}};
  EXPECT_THAT(names(gpu_slices(recording, runs)), ElementsAre("layers.0.mlp/product", "x(int)", "a", "y", "z"));
}

// Bytes over nanoseconds are GB/s. The second op's kernels begin while the first one's last is under way.
TEST(GpuSlices, SayWhatAnOpReadsOverWhatItAdds) {
  std::vector<ProgramOp> program = ops();
  program[0].cost.read[0] = 100;
  program[0].cost.read[1] = 50;
  program[1].cost.read[2] = 3;
  program[1].cost.written[0] = 10;
  const std::vector<ProgramRun> runs = {{program, true, {.rows = 2, .context = 30, .step = 7, .phase = "decode"}}};
  KernelRecording recording{.kernels = {kernel("a", 100, kernel_tag(0, 0), 1), kernel("b", 105, kernel_tag(0, 0), 2),
                                        kernel("c", 110, kernel_tag(0, 1), 3)}};
  const std::vector<GpuSlice> kernels = placed(gpu_slices(recording, runs, 40), GpuSlice::Track::kStream);
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(text_of(kernels[0], "bytes_read"), "none");
  EXPECT_EQ(text_of(kernels[1], "bytes_read"), "200");
  EXPECT_EQ(text_of(kernels[1], "gbps"), std::to_string(200.0 / 15));
  EXPECT_EQ(text_of(kernels[1], "peak_pct"), std::to_string(100 * 200.0 / 15 / 40));
  EXPECT_EQ(text_of(kernels[2], "bytes_read"), "90");
  EXPECT_EQ(text_of(kernels[2], "bytes_written"), "10");
  EXPECT_EQ(text_of(kernels[2], "gbps"), std::to_string(100.0 / 5));
  EXPECT_EQ(text_of(kernels[2], "step"), "7");
  EXPECT_EQ(text_of(kernels[2], "phase"), "decode");
}

TEST(GpuSlices, StepsAndLayersSpanTheirKernels) {
  const std::vector<ProgramOp> program = ops();
  const std::vector<ProgramRun> runs = {{program, true, {.phase = "decode"}}, {program, false, {.phase = "decode"}}};
  const KernelRecording recording{.kernels = {kernel("a", 100, kernel_tag(0, 0), 1),
                                              kernel("b", 105, kernel_tag(0, 1), 2), kernel("a", 112, kernel_tag(1), 3),
                                              kernel("b", 117, kernel_tag(1), 3)}};
  const std::vector<GpuSlice> spans = placed(gpu_slices(recording, runs), GpuSlice::Track::kLayers);
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_THAT(names(spans, GpuSlice::Track::kLayers), ElementsAre("decode", "layer 0", "decode", "layer 0"));
  const auto range = [&](size_t i) { return std::pair(spans[i].begin_ns, spans[i].end_ns); };
  EXPECT_EQ(range(0), std::pair(100L, 115L));
  EXPECT_EQ(range(1), std::pair(100L, 110L));
  EXPECT_EQ(range(2), std::pair(115L, 127L));  // after the one before, although its first kernel overlaps it
  EXPECT_EQ(range(3), std::pair(115L, 122L));
  EXPECT_EQ(text_of(spans[0], "gpu_busy_us"), std::to_string(0.015));
  EXPECT_EQ(text_of(spans[0], "gap_us"), std::to_string(0.0));
}

TEST(GpuSlices, AStepSaysForHowLongNothingRan) {
  const std::vector<ProgramOp> program = ops();
  const std::vector<ProgramRun> runs = {{program, true, {.phase = "decode"}}};
  const auto wait = [](const char* name, uint64_t start, uint64_t end) {
    return GpuActivity{.kind = GpuActivity::Kind::kWait, .name = name, .start = start, .end = end};
  };
  const KernelRecording recording{
      .kernels = {kernel("a", 100, kernel_tag(0, 0), 1), kernel("b", 125, kernel_tag(0, 1), 2)},
      .others = {wait("Stream Sync", 130, 200), wait("Event Sync", 90, 104), wait("Event Sync", 132, 134),
                 wait("Stream Wait Event", 110, 120)}};
  const GpuSlice step = placed(gpu_slices(recording, runs), GpuSlice::Track::kLayers).front();
  EXPECT_EQ(text_of(step, "gpu_busy_us"), std::to_string(0.020));
  EXPECT_EQ(text_of(step, "gap_us"), std::to_string(0.015));
  EXPECT_EQ(text_of(step, "sync_wait_us"), std::to_string(0.009));
}

TEST(GpuSlices, AGraphThatIsOneIsItsWholeProgram) {
  std::vector<ProgramOp> program = ops();
  program[0].cost.read[0] = 300;
  program[1].cost.read[0] = 100;
  const std::vector<ProgramRun> runs = {{program, false, {.step = 3, .phase = "decode"}}};
  const KernelRecording recording{
      .others = {{.kind = GpuActivity::Kind::kGraph,
                  .name = "graph 5",
                  .start = 100,
                  .end = 200,
                  .correlation = 4,
                  .graph = 5,
                  .tag = kernel_tag(0)},
                 {.kind = GpuActivity::Kind::kGraph, .name = "graph 6", .start = 300, .end = 400}}};
  const std::vector<GpuSlice> slices = gpu_slices(recording, runs, 8);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].name, "decode");
  EXPECT_STREQ(slices[0].category, "kernel");
  EXPECT_EQ(text_of(slices[0], "gbps"), std::to_string(4.0));
  EXPECT_EQ(text_of(slices[0], "peak_pct"), std::to_string(50.0));
  EXPECT_EQ(text_of(slices[0], "step"), "3");
  EXPECT_EQ(text_of(slices[0], "sync_wait_us"), std::to_string(0.0));
  EXPECT_EQ(slices[1].name, "graph 6");
}

TEST(GpuSlices, OfEverySortArriveWithTheirArrows) {
  const TempFolder folder;
  const std::string path = folder.file("gpu.json");
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t start = static_cast<uint64_t>(now.tv_sec + 1) * 1'000'000'000;
  const std::vector<ProgramOp> program = ops();
  const auto activity = [&](GpuActivity::Kind kind, const char* name, uint64_t begin, uint64_t end) {
    return GpuActivity{.kind = kind, .name = name, .start = start + begin, .end = start + end, .stream = 7};
  };
  const auto gpu = [&] {
    using Kind = GpuActivity::Kind;
    KernelRecording recording;
    recording.kernels = {kernel("a", start + 100, kernel_tag(0, 0), 5), kernel("b", start + 105, kernel_tag(0, 1), 6),
                         kernel("a", start + 200, kernel_tag(1), 9), kernel("b", start + 205, kernel_tag(1), 9)};
    recording.others = {activity(Kind::kCall, "cudaLaunchKernelExC", 50, 60),
                        activity(Kind::kCall, "cudaLaunchKernelExC", 60, 70),
                        activity(Kind::kCall, "cudaGraphLaunch", 80, 95),
                        activity(Kind::kCopy, "Memcpy DtoH", 120, 130),
                        activity(Kind::kFill, "Memset", 131, 132),
                        activity(Kind::kWait, "Stream Sync", 100, 220),
                        activity(Kind::kWait, "Context Sync", 90, 230),
                        activity(Kind::kOverhead, "CUPTI: resources", 1, 9),
                        activity(Kind::kOverhead, "loading a kernel", 5, 12)};
    recording.others[0].correlation = 5;
    recording.others[1].correlation = 6;
    recording.others[2].correlation = 9;
    for (int i = 0; i < 3; ++i) recording.others[static_cast<size_t>(i)].thread = static_cast<uint32_t>(gettid());
    recording.others[6].stream = GpuActivity::kNoStream;
    const std::vector<ProgramRun> runs = {{program, true, {.phase = "decode"}}, {program, false, {.phase = "decode"}}};
    return GpuSlices{gpu_slices(recording, runs), 0};
  };
  trace::Recorder recorder({.drain_interval = std::chrono::milliseconds(0)},
                           make_perfetto_writer({.path = path, .mode = "node", .kernels = gpu}));
  recorder.add_track("main");
  ASSERT_TRUE(recorder.stop().ok());
  const CheckReport report = check_trace(path);
  for (const Finding& f : report.findings) ADD_FAILURE() << to_string(f, path);
  EXPECT_EQ(report.flow_events, 3u + 4u);  // a graph's launch has two ends
  const TraceFile trace = read_trace(path);
  EXPECT_EQ(trace.flows.size(), 4u);
  EXPECT_EQ(trace.slices.size(), 4u + 9u + 4u);
  EXPECT_THAT(folder.bytes(path),
              AllOf(HasSubstr(R"({"name":"CUDA calls of main"})"), HasSubstr(R"({"name":"layers of GPU 0"})"),
                    HasSubstr(R"({"name":"all streams, waits"})"), HasSubstr(R"("tid":1007,"ts":)"),
                    HasSubstr(R"("cat":"gpu_memcpy","name":"Memcpy DtoH")"), HasSubstr(R"("cat":"cuda_sync")"),
                    HasSubstr(R"({"name":"CUPTI and CUDA, overlapping"})")));
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
    return GpuSlices{gpu_slices(recording, std::vector<ProgramRun>{{program, true}}), 2};
  };
  trace::Recorder recorder({.drain_interval = std::chrono::milliseconds(0)},
                           make_perfetto_writer({.path = path, .mode = "node", .kernels = kernels}));
  ASSERT_TRUE(recorder.stop().ok());
  const CheckReport report = check_trace(path);
  ASSERT_EQ(report.findings.size(), 1u);  // and no overlap
  EXPECT_EQ(report.findings[0].rule, "dropped");
  EXPECT_THAT(report.findings[0].found, HasSubstr("3 records"));
  EXPECT_EQ(report.slices, 6u + 1u + 3u);  // with the run and its three times in a layer
  EXPECT_THAT(
      folder.bytes(path),
      AllOf(HasSubstr(R"("pid":100,"name":"process_name","args":{"name":"GPU 0"})"),
            HasSubstr(R"("tid":1007,"name":"thread_name","args":{"name":"stream 7"})"),
            HasSubstr(R"("args":{"name":"stream 7, overlapping"})"),
            HasSubstr(R"("cat":"kernel","name":"layers.0.mlp/product","args":{"kernel":"k","device":0,"stream":7)"),
            HasSubstr(R"("component":"quantization.none","op":"product","layer":0)"), Not(HasSubstr("early"))));
}

}  // namespace
}  // namespace tenon::profiler
