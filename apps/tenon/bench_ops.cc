// This measures how long each op of a decode step takes, after the runs that count: by the kernels that CUPTI records,
// or, where there are none, by the clock around each op.
#include "bench_ops.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "command.h"

namespace tenon::app {
namespace {

constexpr uint32_t kSteps = 20, kWarmups = 4;

uint64_t now() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

uint32_t steps_under_way(Engine& engine) {
  return (engine.pipeline().device().flags & TENON_DEVICE_WALKS) != 0 ? 0 : 1;
}

// Nobody watches any more, whatever ended the run.
class Watching {
 public:
  Watching(Pipeline& pipeline, OpWatch watch) : pipeline_(pipeline) { pipeline_.watch(std::move(watch)); }
  ~Watching() {
    try {
      pipeline_.watch({});
    } catch (const Error&) {  // a device that fails says so in its next step
    }
  }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  Pipeline& pipeline_;
};

}  // namespace

struct OpBench::Steps {
  const Program* program = nullptr;
  std::vector<profiler::StepEnds> ends;
};

// On a device with queues the first step after the prompts is under way when these have been read: `begin` is for those
// after it.
void OpBench::decode(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, uint32_t steps,
                     const std::function<void()>& begin) {
  std::vector<Request> requests(prompts.size());
  size_t read = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests[i].tokens = prompts[i];
    requests[i].max_new_tokens = steps + 1 + steps_under_way(engine);
    requests[i].ignore_end = true;
    requests[i].cancel = cancel_;
    requests[i].on_prompt = [&](uint32_t done, uint32_t total) {
      if (done == total && ++read == prompts.size()) begin();
    };
  }
  for (const Result& result : engine.generate(requests)) {
    if (result.error) std::rethrow_exception(result.error);
    if (result.finish == FinishReason::kCancelled) throw Interrupted();
  }
}

// The first step launches op by op, which shows what kernels each op launches; the steps after it run as they do
// otherwise.
OpBench::Steps OpBench::by_kernels(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, uint32_t steps) {
  if (!recorder_) recorder_ = std::make_unique<profiler::KernelRecorder>();
  Pipeline& pipeline = engine.pipeline();
  const Program* program = nullptr;
  profiler::KernelRecording launched;
  const auto begin = [&](const Program& p, const StepLoad&) {
    program = &p;
    return true;
  };
  const auto op = [&](const Program& p, size_t i) { recorder_->tag(i < p.ops().size() ? i + 1 : 0); };
  {
    std::optional<Watching> watching;
    decode(engine, prompts, 1, [&] {
      watching.emplace(pipeline, OpWatch{begin, op});
      recorder_->start(profiler::GpuRecords::kTagged);
    });
    watching.reset();
    launched = recorder_->stop();
  }
  if (program == nullptr) throw Error(ErrorCode::kUsage, "--ops: no step came that could be watched");
  const profiler::KernelNames names = profiler::kernels_by_op(launched, program->ops().size());
  decode(engine, prompts, steps, [&] {
    pipeline.watch({});
    recorder_->start();
  });
  pipeline.watch({});
  return {program, profiler::place_kernels(recorder_->stop(), names)};
}

OpBench::Steps OpBench::by_watch(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, uint32_t steps) {
  Steps seen;
  const auto begin = [&](const Program& p, const StepLoad&) {
    seen.program = &p;
    seen.ends.emplace_back();
    return true;
  };
  const auto op = [&](const Program&, size_t i) {
    if (i == 0) {
      seen.ends.back().begin = now();
    } else {
      seen.ends.back().ends.push_back(now());
    }
  };
  std::optional<Watching> watching;
  decode(engine, prompts, steps, [&] { watching.emplace(engine.pipeline(), OpWatch{begin, op}); });
  return seen;
}

OpReport OpBench::measure(Engine& engine, const Size& size, const Prompts& make_prompts) {
  OpReport report;
  const tenon_device& device = engine.pipeline().device();
  const bool walks = (device.flags & TENON_DEVICE_WALKS) != 0;
  if (!walks && std::string_view(device.kind) != "cuda") {
    report.problem = std::string("--ops needs a CUDA device or the CPU; device.") + device.kind + " is neither";
  } else if (engine.pipeline().draft_tokens() > 0) {
    report.problem = "--ops needs steps that are all alike; leave out [draft]";
  } else if (size.new_tokens < 3) {
    report.problem =
        "--ops needs steps to record: expected --new-tokens 3 or more, found " + std::to_string(size.new_tokens);
  }
  if (!report.problem.empty()) return report;
  const uint32_t steps = std::min(kWarmups + kSteps, size.new_tokens - 1), skip = std::min(kWarmups, steps - 1);
  const uint32_t ahead = skip + (steps - skip) / 2, middle = size.new_tokens / 2;
  const uint32_t prompt_tokens = size.prompt_tokens + (middle > ahead ? middle - ahead : 0);
  try {
    const std::vector<std::vector<int32_t>> prompts = make_prompts(prompt_tokens);
    const Steps seen = walks ? by_watch(engine, prompts, steps) : by_kernels(engine, prompts, steps);
    const profiler::OpTimes times = profiler::since_last_end(seen.ends, skip);
    report.clock = walks ? "the host's clock" : "CUPTI's records of the kernels";
    report.steps = times.steps;
    // After the prompt, step i attends to it, to the i tokens before and to its own.
    report.context = prompt_tokens + steps_under_way(engine) + skip + (times.steps - 1) / 2.0 + 1;
    report.groups = profiler::group_ops(seen.program->ops(), times, size.batch, size.batch * report.context);
    report.between_us = times.between_us;
    report.step_us = times.step_us;
    report.tok_per_s = times.step_us > 0 ? size.batch * 1e6 / times.step_us : 0;
  } catch (const Error& e) {
    recorder_.reset();  // its further records are of no use
    report.problem = e.diagnostics().front().message;
  }
  return report;
}

}  // namespace tenon::app
