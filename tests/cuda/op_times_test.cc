// This tests the times of a step's ops on a GPU, from CUPTI's records.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "bench_ops.h"
#include "gpu_trace.h"
#include "support/pipelines.h"
#include "tenon/core/error.h"
#include "tenon/profiler/trace_check.h"
#include "tenon/profiler/trace_stats.h"

namespace tenon::app {
namespace {

using Settings = std::vector<std::string>;

std::unique_ptr<Engine> open(Settings settings, uint32_t sequences = 1, trace::Recorder* recorder = nullptr) {
  settings.insert(settings.end(), {"device.use=cuda", "quantization.use=int8wo", "kv_cache.capacity=128"});
  if (sequences > 1) {
    settings.push_back("scheduler.use=lockstep");
    settings.push_back("scheduler.sequences=" + std::to_string(sequences));
  }
  return Engine::open({.config = "synthetic:stories15m",
                       .set = settings,
                       .plugin_dirs = {test::plugins()},
                       .sequences = sequences,
                       .recorder = [=](const PipelineConfig&) { return recorder; }});
}

std::vector<std::vector<int32_t>> prompts(uint32_t sequences, uint32_t length) {
  std::vector<std::vector<int32_t>> all(sequences);
  for (std::vector<int32_t>& prompt : all) {
    for (uint32_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>((i * 37 + 5) % 200 + 3));
  }
  return all;
}

std::vector<int32_t> tokens(Engine& engine) {
  Request request;
  request.tokens = prompts(1, 10).front();
  request.max_new_tokens = 40;
  request.ignore_end = true;
  return engine.generate(request).tokens;
}

class CudaOps : public testing::Test {
 protected:
  void SetUp() override {
    try {
      open({});
      const profiler::KernelRecorder recorder;
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }

  OpReport measure(Engine& engine, uint32_t sequences = 1) {
    return bench_.measure(engine, {sequences, 10, 100}, [&](uint32_t length) { return prompts(sequences, length); });
  }

  // Every op of the program is there, with the program's bytes, and the times add up to the step.
  static void check(const OpReport& report, Engine& engine, uint32_t sequences = 1) {
    ASSERT_EQ(report.problem, "");
    EXPECT_EQ(report.steps, 20u);
    const std::vector<const Program*> programs = engine.pipeline().programs();
    const Program& program =
        **std::ranges::find_if(programs, [&](const Program* p) { return p->bounds().rows >= sequences; });
    std::set<std::string> measured, recorded;
    double us = report.between_us, bytes = 0;
    for (const profiler::OpGroup& group : report.groups) {
      measured.insert(group.component + ' ' + group.op);
      us += group.us;
      EXPECT_GE(group.us, 0) << group.path;
    }
    const double rows = sequences, context = sequences * report.context;
    for (const ProgramOp& op : program.ops()) {
      recorded.insert(op.component + ' ' + op.name);
      for (const auto& cost : {op.cost.read, op.cost.written}) bytes += cost[0] + cost[1] * rows + cost[2] * context;
    }
    EXPECT_EQ(measured, recorded);
    EXPECT_EQ(report.total().calls, program.ops().size());
    EXPECT_NEAR(report.total().bytes, bytes, 1);
    EXPECT_GT(report.step_us, 0);
    EXPECT_NEAR(us, report.step_us, 1e-6 * report.step_us);
    EXPECT_LT(report.between_us, report.step_us);
    EXPECT_NEAR(report.tok_per_s * report.step_us, sequences * 1e6, 1);
  }

  OpBench bench_{std::stop_token()};
};

TEST_F(CudaOps, AddUpToTheStepInEveryMode) {
  for (const char* mode : {"graph", "recorded", "per_op"}) {
    SCOPED_TRACE(mode);
    const auto engine = open({std::string("pipeline.execution=") + mode});
    check(measure(*engine), *engine);
  }
}

TEST_F(CudaOps, AddUpWithSeveralSequencesAndWithoutOverlap) {
  const auto batch = open({}, 3);
  check(measure(*batch, 3), *batch, 3);
  const auto plain = open({"device.overlap=false"});
  check(measure(*plain), *plain);
}

TEST_F(CudaOps, LeaveTheEngineAsItWas) {
  const auto engine = open({});
  const std::vector<int32_t> before = tokens(*engine);
  check(measure(*engine), *engine);
  EXPECT_EQ(tokens(*engine), before);
  check(measure(*engine), *engine);
  EXPECT_EQ(tokens(*engine), before);
}

constexpr uint64_t kSkipped = 3, kSteps = 8;

// Writes the trace of some decode steps, which changes no token and loses nothing.
std::filesystem::path record(bool nodes) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("gpu-" + std::to_string(getpid()) + ".json");
  GpuTrace gpu({.nodes = nodes});
  trace::Recorder recorder(
      {.skip_steps = kSkipped, .steps = kSteps},
      profiler::make_perfetto_writer(
          {.path = path, .mode = nodes ? "node" : "graph", .kernels = [&] { return gpu.take(1000); }}));
  const auto engine = open({}, 1, &recorder);
  engine->load();
  gpu.attach(engine->pipeline(), recorder);
  const std::vector<int32_t> traced = tokens(*engine);
  EXPECT_TRUE(recorder.stop().ok());
  EXPECT_EQ(gpu.problem(), "");
  EXPECT_EQ(traced, tokens(*open({})));
  const profiler::CheckReport report = profiler::check_trace(path);
  for (const profiler::Finding& finding : report.findings) ADD_FAILURE() << to_string(finding, path);
  EXPECT_GT(report.flow_events, kSteps);
  return path;
}

// A graph's run is one slice, with the bytes of its whole program.
TEST_F(CudaOps, AreOneSliceAGraph) {
  const std::filesystem::path path = record(false);
  const profiler::TraceStats stats = profiler::trace_stats(profiler::read_trace(path), profiler::GroupBy::kOp);
  const auto graph = std::ranges::find(stats.groups, "graph", &profiler::GroupStats::op);
  ASSERT_NE(graph, stats.groups.end());
  EXPECT_EQ(graph->phase, "decode");
  EXPECT_GE(graph->calls, kSteps - 2);
  EXPECT_GT(graph->gbps(), 0);
  std::filesystem::remove(path);
}

// Every op of a decode step is a slice of the GPU's track, from graphs too.
TEST_F(CudaOps, AreSlicesOfATrace) {
  const std::filesystem::path path = record(true);
  const auto engine = open({});
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const char* what :
       {R"("cat":"cuda_runtime")", R"("name":"layers of GPU 0")", R"("cat":"gpu_user_annotation")", R"("peak_pct":)",
        R"("phase":"decode")", R"("name":"hbm_read_gbps")", R"("name":"kv_blocks_used")"}) {
    EXPECT_NE(text.find(what), std::string::npos) << what;
  }
  const profiler::TraceStats stats = profiler::trace_stats(profiler::read_trace(path), profiler::GroupBy::kOp);
  EXPECT_TRUE(stats.kernels);
  const auto down = std::ranges::find(stats.groups, "layers.*.mlp.down", &profiler::GroupStats::path);
  ASSERT_NE(down, stats.groups.end());
  EXPECT_EQ(down->phase, "decode");
  EXPECT_GT(down->gbps(), 0);
  const auto count = [&](const std::string& what) {
    size_t n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  for (const ProgramOp& op : engine->pipeline().programs().front()->ops()) {
    EXPECT_GE(count("\"name\":\"" + op.path + '/' + op.name + '"'), kSteps) << op.path << ' ' << op.name;
  }
  std::filesystem::remove(path);
}

// This gives, of a run that is recorded all along, the kernels of the steps that somebody asked for, twice.
TEST_F(CudaOps, OfTheStepsThatAreWrittenAreInTheTrace) {
  constexpr uint64_t kKept = 4;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("kept-" + std::to_string(getpid()) + ".json");
  for (const bool nodes : {true, false}) {
    SCOPED_TRACE(nodes ? "node" : "graph");
    GpuTrace gpu({.nodes = nodes, .keep_steps = true});
    trace::Recorder recorder(
        {.keep_steps = kKept,
         .decided = [&](uint64_t step, bool written) { gpu.decide(step, written); },
         .drain_interval = std::chrono::milliseconds(0)},
        profiler::make_perfetto_writer(
            {.path = path, .mode = nodes ? "node" : "graph", .kernels = [&] { return gpu.take(1000); }}));
    const auto engine = open({}, 1, &recorder);
    engine->load();
    gpu.attach(engine->pipeline(), recorder);
    uint32_t tokens = 0;
    Request request;
    request.tokens = prompts(1, 10).front();
    request.max_new_tokens = 110;
    request.ignore_end = true;
    request.on_token = [&](const Token&) {
      recorder.drain();
      if (++tokens == 40 || tokens == 100) recorder.capture();
      return true;
    };
    engine->generate(request);
    ASSERT_TRUE(recorder.stop().ok());
    EXPECT_EQ(gpu.problem(), "");
    const profiler::CheckReport report = profiler::check_trace(path);
    for (const profiler::Finding& finding : report.findings) ADD_FAILURE() << to_string(finding, path);
    const profiler::TraceFile trace = profiler::read_trace(path);
    std::map<double, std::set<std::string>> kernels;  // by step
    std::set<double> steps;
    for (const profiler::TraceSlice& slice : trace.slices) {
      const double step = trace.number(slice, "step").value_or(-1);
      if (trace.name(slice).starts_with("ProfilerStep#")) steps.insert(step);
      if (trace.category(slice) == "kernel") kernels[step].insert(std::string(trace.name(slice)));
    }
    EXPECT_EQ(steps.size(), 2 * kKept);
    EXPECT_EQ(kernels.size(), 2 * kKept);
    for (const auto& [step, names] : kernels) {
      EXPECT_TRUE(steps.contains(step)) << step;
      std::set<std::string> expected = {"decode"};
      if (nodes) {
        expected.clear();
        for (const ProgramOp& op : engine->pipeline().programs().front()->ops()) {
          expected.insert(op.path + '/' + op.name);
        }
      }
      for (const std::string& name : expected) EXPECT_TRUE(names.contains(name)) << step << ' ' << name;
    }
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tenon::app
