// This tests GpuTrace over a pipeline of the CPU, with a CUPTI that makes up a kernel for each operation.
#include "gpu_trace.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>

#include "fake_cupti.h"
#include "support/pipelines.h"
#include "temp_folder.h"
#include "tenon/profiler/trace_check.h"
#include "tenon/profiler/trace_file.h"

namespace tenon::app {
namespace {

using testing::HasSubstr;

constexpr uint32_t kTokens = 80;

class MadeUpGpu : public testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen(TENON_FAKE_CUPTI, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    fake_ = reinterpret_cast<FakeCupti* (*)()>(dlsym(library, "fake_cupti"))();
    *fake_ = {};
    fake_->deliver_at = 64;
    fake_->on_tag = [this](uint64_t tag) { launch(tag); };
  }
  void TearDown() override { *fake_ = {}; }

  static uint64_t now() {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  }

  // Puts in a call and its kernel. The tag comes last.
  void launch(uint64_t tag) {
    if (static_cast<uint32_t>(tag) == UINT32_MAX) return;  // the tag is the whole run's
    const uint64_t at = std::max(now(), newest_);
    newest_ = at + 20;
    ++correlation_;
    FakeRecord call{}, kernel{}, tagged{};
    call.call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
    call.call.cbid = 1;
    call.call.start = at;
    call.call.end = at + 5;
    call.call.threadId = uint32_t(gettid());
    call.call.correlationId = correlation_;
    kernel.kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    kernel.kernel.name = "k";
    kernel.kernel.start = at + 10;
    kernel.kernel.end = at + 20;
    kernel.kernel.correlationId = correlation_;
    kernel.kernel.streamId = 7;
    tagged.tag.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    tagged.tag.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    tagged.tag.externalId = tag;
    tagged.tag.correlationId = correlation_;
    for (const FakeRecord& record : {call, kernel, tagged}) fake_->records.push_back(record);
  }

  // Records a run of the engine. on_token: is called at each token, with its number.
  void record(GpuTrace& gpu, trace::RecorderOptions options,
              const std::function<void(trace::Recorder&, uint32_t)>& on_token = {}) {
    options.drain_interval = std::chrono::milliseconds(0);
    options.decided = [&](uint64_t step, bool written) { gpu.decide(step, written); };
    trace::Recorder recorder(options, profiler::make_perfetto_writer(
                                          {.path = path_, .mode = "node", .kernels = [&] { return gpu.take(); }}));
    EngineOptions engine_options{.config = test::root() / "tests/golden/data" / test::kTiny,
                                 .set = test::kExact,
                                 .plugin_dirs = {test::plugins()},
                                 .recorder = [&](const PipelineConfig&) { return &recorder; }};
    const auto engine = Engine::open(engine_options);
    engine->load();
    gpu.attach(engine->pipeline(), recorder);
    ops_ = engine->pipeline().programs().front()->ops().size();
    Request request = test::request(kTokens);
    uint32_t tokens = 0;
    request.on_token = [&](const Token&) {
      recorder.drain();
      if (on_token) on_token(recorder, tokens);
      ++tokens;
      return true;
    };
    engine->generate(request);
    ASSERT_TRUE(recorder.stop().ok());
  }

  // Counts the kernels of each step, by the step's number.
  static std::map<uint64_t, size_t> kernels_of(const profiler::TraceFile& trace) {
    std::map<uint64_t, size_t> steps;
    for (const profiler::TraceSlice& slice : trace.slices) {
      if (trace.category(slice) != "kernel") continue;
      const auto step = trace.number(slice, "step");
      EXPECT_TRUE(step) << trace.name(slice);
      if (step) ++steps[static_cast<uint64_t>(*step)];
    }
    return steps;
  }
  static std::set<uint64_t> steps_of(const profiler::TraceFile& trace) {
    std::set<uint64_t> steps;
    for (const profiler::TraceSlice& slice : trace.slices) {
      if (trace.name(slice).starts_with("ProfilerStep#")) {
        steps.insert(static_cast<uint64_t>(trace.number(slice, "step").value_or(-1)));
      }
    }
    return steps;
  }

  FakeCupti* fake_ = nullptr;
  uint64_t newest_ = 0;
  uint32_t correlation_ = 0;
  size_t ops_ = 0;
  TempFolder folder_;
  const std::string path_ = folder_.file("t.json");
};

TEST_F(MadeUpGpu, RecordsTheKernelsOfTheStepsThatAreWritten) {
  for (const bool nodes : {true, false}) {
    SCOPED_TRACE(nodes ? "node" : "graph");
    GpuTrace gpu({.nodes = nodes, .keep_steps = true, .library = TENON_FAKE_CUPTI});
    record(gpu, {.keep_steps = 3}, [](trace::Recorder& recorder, uint32_t token) {
      if (token == 20 || token == 50) recorder.capture();
    });
    EXPECT_EQ(gpu.problem(), "");
    const profiler::CheckReport report = profiler::check_trace(path_);
    for (const profiler::Finding& finding : report.findings) ADD_FAILURE() << to_string(finding, path_);
    const profiler::TraceFile trace = profiler::read_trace(path_);
    const std::set<uint64_t> steps = steps_of(trace);
    const std::map<uint64_t, size_t> kernels = kernels_of(trace);
    EXPECT_EQ(steps.size(), 6u);
    EXPECT_EQ(kernels.size(), 6u);
    for (const auto& [step, count] : kernels) {
      EXPECT_TRUE(steps.contains(step)) << step;
      EXPECT_EQ(count, ops_) << step;
    }
    const auto calls =
        std::ranges::count_if(trace.slices, [&](const auto& slice) { return trace.category(slice) == "cuda_runtime"; });
    EXPECT_EQ(static_cast<size_t>(calls), 6 * ops_);
    EXPECT_EQ(trace.flows.size(), 6 * ops_);
  }
}

TEST_F(MadeUpGpu, SaysThatNoStepWasWritten) {
  GpuTrace gpu({.keep_steps = true, .library = TENON_FAKE_CUPTI});
  record(gpu, {.keep_steps = 3});
  EXPECT_THAT(gpu.problem(), HasSubstr("no kernels: no step was written"));
}

TEST_F(MadeUpGpu, SaysWhichRunsLackTheirKernels) {
  {
    GpuTrace gpu({.library = TENON_FAKE_CUPTI});
    record(gpu, {.skip_steps = 2, .steps = 5});
    EXPECT_EQ(gpu.problem(), "");
  }
  {
    GpuTrace gpu({.library = TENON_FAKE_CUPTI});
    record(gpu, {});
    EXPECT_THAT(gpu.problem(), HasSubstr("kernels of the first 64 runs of programs alone"));
  }
  fake_->on_tag = {};
  {
    GpuTrace gpu({.library = TENON_FAKE_CUPTI});
    record(gpu, {.steps = 4});
    EXPECT_THAT(gpu.problem(), HasSubstr("no kernels: CUPTI recorded none in 4 runs"));
  }
  uint32_t first = 0;
  fake_->on_tag = [&](uint64_t tag) {
    if (first == 0) first = static_cast<uint32_t>(tag >> 32U);
    if (tag >> 32U != first) launch(tag);
  };
  fake_->dropped = 3;
  GpuTrace gpu({.library = TENON_FAKE_CUPTI});
  record(gpu, {.steps = 4});
  EXPECT_THAT(gpu.problem(), HasSubstr("no kernels of 1 of 4 runs"));
  EXPECT_THAT(gpu.problem(), HasSubstr("3 records of the GPU are lost"));
}

}  // namespace
}  // namespace tenon::app
