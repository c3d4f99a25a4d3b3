// A traced engine is an engine, its trace, and what the trace says about the pipeline. The file is complete once
// finish_trace() has returned. A trace without kernels is still a trace: why it has none stands in its metadata. The
// recorder stops before the pipeline ends, and facts are read by the thread that writes the trace, so a mutex guards
// them.
#include "traced_engine.h"

#include <spdlog/spdlog.h>

#include <csignal>
#include <fstream>

#include "bandwidth.h"
#include "gpu_trace.h"
#include "output_path.h"
#include "progress.h"
#include "report.h"
#include "tenon/profiler/perfetto_writer.h"

namespace tenon::app {
namespace {

std::atomic<trace::Recorder*> captured_by_signal = nullptr;
static_assert(decltype(captured_by_signal)::is_always_lock_free);

void on_capture_signal(int) {
  if (trace::Recorder* recorder = captured_by_signal) recorder->capture();
}

std::string lines_of(const std::vector<Decision>& decisions) {
  std::string text;
  for (const Decision& d : decisions) text += decision_line(d) + '\n';
  return text;
}

std::vector<trace::Arg> properties_of(const tenon_device& d) {
  std::vector<trace::Arg> list = {
      {"id", uint64_t{d.ordinal}}, {"name", std::string(d.name)}, {"kind", std::string(d.kind)}};
  if ((d.flags & TENON_DEVICE_WALKS) != 0) return list;
  list.push_back({"totalGlobalMem", d.memory});
  list.push_back({"numSms", uint64_t{d.units}});
  list.push_back({"computeMajor", uint64_t{d.arch / 10}});
  list.push_back({"computeMinor", uint64_t{d.arch % 10}});
  return list;
}

}  // namespace

TracedEngine::TracedEngine(const PipelineArgs& args, EngineOptions options) {
  options.config = args.config;
  options.set = args.overrides();
  options.plugin_dirs = args.plugin_dirs;
  options.model_dirs = args.model_dirs;
  options.log = &log_message;
  options.recorder = [&](const PipelineConfig& config) {
    check_output(config.trace.path, std::vector{args.config, config.model.path}, args.force);
    return make_recorder(config, args.force);
  };
  engine_ = Engine::open(options);
  if (!recorder_) return;
  if (engine_->config().trace.keep_steps > 0) {
    captured_by_signal = recorder_.get();
    std::signal(SIGUSR1, &on_capture_signal);
  }
  const std::lock_guard lock(facts_mutex_);
  facts_.push_back({"pipeline_toml", to_toml(engine_->config())});
  facts_.push_back({"negotiation", lines_of(engine_->pipeline().decisions())});
  facts_.push_back({"memory_plan", to_string(engine_->pipeline().plan())});
  facts_.push_back({"slots", uint64_t{engine_->pipeline().sequences()}});
  devices_.push_back(properties_of(engine_->pipeline().device()));
}

trace::Recorder* TracedEngine::make_recorder(const PipelineConfig& config, bool replace) {
  const TraceConfig& trace = config.trace;
  if (trace.path.empty()) return nullptr;
  trace_path_ = trace.path;
  profiler::PerfettoOptions writer;
  writer.path = trace_path_;
  writer.replace = replace;
  writer.metadata = {{"version", std::string(TENON_VERSION)}, {"model", config.model.path}};
  writer.more_metadata = [this] { return facts(); };
  writer.devices = [this] {
    const std::lock_guard lock(facts_mutex_);
    return devices_;
  };
  writer.read_gbps = [this] { return read_gbps_.load(std::memory_order_relaxed); };
  if (config.device.name == "cuda" && trace.kernels != "none") {
    writer.mode = trace.kernels;  // the trace promises this, whatever comes of it
    try {
      gpu_ = std::make_unique<GpuTrace>(
          GpuTraceOptions{.nodes = trace.kernels == "node", .keep_steps = trace.keep_steps > 0});
      writer.metadata.push_back({"cupti", gpu_->cupti_version()});
      std::string driver;
      std::ifstream file("/proc/driver/nvidia/version");
      if (std::getline(file, driver)) writer.metadata.push_back({"driver", driver});
      writer.kernels = [this] { return gpu_->take(read_gbps_); };
    } catch (const Error& e) {
      problem_ = "no kernels: " + e.diagnostics().front().message;
    }
  }
  trace::RecorderOptions options;
  options.skip_steps = trace.skip_steps;
  options.steps = trace.steps;
  options.keep_steps = trace.keep_steps;
  options.slow_step = std::chrono::nanoseconds(static_cast<int64_t>(trace.slow_step_ms * 1e6));
  if (gpu_) options.decided = [this](uint64_t step, bool written) { gpu_->decide(step, written); };
  if (trace.buffer > 0) options.ring_records = trace.buffer;
  recorder_ = std::make_unique<trace::Recorder>(options, profiler::make_perfetto_writer(std::move(writer)));
  return recorder_.get();
}

TracedEngine::~TracedEngine() {
  trace::Recorder* mine = recorder_.get();
  if (mine != nullptr) captured_by_signal.compare_exchange_strong(mine, nullptr);
  if (gpu_ && recorder_) static_cast<void>(recorder_->stop());  // it stops while the pipeline is there
}

std::string TracedEngine::problem() const {
  return gpu_ ? gpu_->problem() : problem_;
}

std::vector<trace::Arg> TracedEngine::facts() {
  const std::lock_guard lock(facts_mutex_);
  std::vector<trace::Arg> all = facts_;
  const double gbps = read_gbps_;
  if (gbps > 0) all.push_back({"read_bandwidth_gbps", gbps});
  if (const std::string problem = this->problem(); !problem.empty()) all.push_back({"problem", problem});
  return all;
}

void TracedEngine::load() {
  const std::stop_token cancel = interruption();
  spdlog::debug("loading {}", engine_->config().model.path);
  Progress progress("loading");
  engine_->load([&](uint64_t done, uint64_t total) {
    progress.update(done, total);
    if (cancel.stop_requested()) throw Interrupted();
  });
  progress.finish();
  if (!recorder_) return;
  try {
    read_gbps_ = read_bandwidth(engine_->pipeline()).bytes_per_second / 1e9;
  } catch (const Error& e) {
    spdlog::warn("the trace has no shares of the read bandwidth: {}", e.what());
  }
  std::ofstream("/proc/self/clear_refs") << "5";  // the measurement's memory is not the pipeline's
  if (gpu_) gpu_->attach(engine_->pipeline(), *recorder_);
}

void TracedEngine::capture() {
  if (!recorder_ || engine_->config().trace.keep_steps == 0) {
    spdlog::error("no steps are kept to be traced; they are with --trace FILE --set trace.keep_steps=16");
    return;
  }
  const uint64_t before = recorder_->kept().steps_written;
  recorder_->capture();
  recorder_->drain();
  spdlog::info("trace: {} steps written to {}.part, which is {} at the end", recorder_->kept().steps_written - before,
               trace_path_, trace_path_);
}

void TracedEngine::report_kept() const {
  const trace::Recorder::Kept kept = recorder_->kept();
  const double slowest = static_cast<double>(kept.slowest.count()) / 1e6;
  const double limit = engine_->config().trace.slow_step_ms;
  if (kept.steps_written > 0) {
    spdlog::info("trace: {} of {} steps; the slowest took {:.3f} ms", kept.steps_written, kept.steps_seen, slowest);
  } else if (limit > 0) {
    spdlog::warn("the trace has no steps: none of {} took {} ms; the slowest took {:.3f} ms", kept.steps_seen, limit,
                 slowest);
  } else {
    spdlog::warn("the trace has no steps: nobody asked for any of {} (signal USR1, /trace in a chat)", kept.steps_seen);
  }
}

bool TracedEngine::finish_trace() {
  if (!recorder_) return true;
  const Status status = recorder_->stop();
  if (!status.ok()) {
    spdlog::error("{}", status.message());
    return false;
  }
  if (const std::string problem = this->problem(); !problem.empty()) spdlog::warn("the trace: {}", problem);
  if (engine_->config().trace.keep_steps > 0) report_kept();
  spdlog::info("trace: {} (open it at https://ui.perfetto.dev)", trace_path_);
  if (recorder_->dropped() > 0) spdlog::warn("the trace lost {} events to full buffers", recorder_->dropped());
  return true;
}

}  // namespace tenon::app
