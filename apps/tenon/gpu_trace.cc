// This records a GPU's kernels of a traced run and gives them to the steps that launched them. It waits until steps are
// captured, records as long as they are, and never records again. Every launch while it records bears the tag of its
// run, by which CUPTI's records find their step. What was lost is counted and said, and the trace goes on without it.
#include "gpu_trace.h"

#include <set>
#include <utility>

#include "tenon/core/error.h"

namespace tenon::app {

void GpuTrace::attach(Pipeline& pipeline, const trace::Recorder& recorder) {
  pipeline_ = &pipeline;
  recorder_ = &recorder;
  pipeline.watch({.begin = [this](const Program& p, const StepLoad& load) { return begin(p, load); },
                  .op = [this](const Program& p, size_t i) { op(p, i); }});
}

bool GpuTrace::begin(const Program& program, const StepLoad& load) {
  const std::lock_guard lock(mutex_);
  const bool capturing = recorder_->capturing(), room = options_.keep_steps || runs_.size() < kMaxRuns;
  const bool wanted = capturing && room;
  if (capturing && !room) cut_ = true;
  queue_ = program.launch(0).queue;
  if (state_ == State::kWaiting && wanted) start();
  if (state_ == State::kRecording && !wanted) stop();
  if (state_ != State::kRecording) return false;
  run_ = runs_.begin(program.ops(), load);
  kernels_.tag(profiler::kernel_tag(run_));
  return !std::exchange(known_[&program], true);
}

void GpuTrace::op(const Program& program, size_t op) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kRecording) return;
  runs_.one_by_one(run_);
  kernels_.tag(op < program.ops().size() ? profiler::kernel_tag(run_, static_cast<uint32_t>(op)) : 0);
}

void GpuTrace::start() {
  try {
    profiler::KernelRecorder::Wanted wanted;
    if (options_.keep_steps) wanted = [this](uint64_t tag) { return runs_.wanted(tag); };
    kernels_.start(options_.nodes ? profiler::GpuRecords::kNodes : profiler::GpuRecords::kGraphs, std::move(wanted));
    state_ = State::kRecording;
  } catch (const Error& e) {
    problem_ = "no kernels: " + e.diagnostics().front().message;
    state_ = State::kDone;
  }
}

void GpuTrace::stop() {
  state_ = State::kDone;
  const tenon_device& device = pipeline_->device();
  // A failure is the step's to tell. A device without queues has nothing under way.
  if (device.wait != nullptr) static_cast<void>(device.wait(device.self, queue_, nullptr));
  try {
    recording_ = kernels_.stop();
  } catch (const Error& e) {
    problem_ = "no kernels: " + e.diagnostics().front().message;
  }
}

void GpuTrace::judge(const std::vector<profiler::ProgramRun>& runs) {
  using Kind = profiler::GpuActivity::Kind;
  std::set<uint64_t> seen;  // runs, by the upper half of their tags
  for (const profiler::KernelRecord& kernel : recording_.kernels) seen.insert(kernel.tag >> 32U);
  for (const profiler::GpuActivity& other : recording_.others) {
    if (other.kind == Kind::kGraph) seen.insert(other.tag >> 32U);
  }
  uint64_t without = 0, wanted = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].only_to_learn) continue;
    ++wanted;
    if (!seen.contains(i + 1)) ++without;
  }
  const uint64_t records = recording_.dropped + recording_.untimed;
  lost_ = records + without + runs_.refused();
  const auto add = [&](const std::string& problem) { problem_ += (problem_.empty() ? "" : "; ") + problem; };
  const std::string of_runs = std::to_string(wanted) + " runs of programs";
  if (runs_.written() == 0) {
    add("no kernels: no step was written");
  } else if (without > 0 && without == wanted) {
    add("no kernels: CUPTI recorded none in " + of_runs +
        "; another profiler may hold the GPU, or this process may not be allowed to");
  } else if (without > 0) {
    add("no kernels of " + std::to_string(without) + " of " + of_runs + ": CUPTI recorded none");
  }
  if (records > 0) {
    add(std::to_string(records) + " records of the GPU are lost: " + std::to_string(recording_.dropped) +
        " found no room in CUPTI's buffers, " + std::to_string(recording_.untimed) + " kernels have no times");
  }
  if (runs_.refused() > 0) {
    add("no kernels of the last " + std::to_string(runs_.refused()) + " of " + std::to_string(runs_.written()) +
        " runs that were written: there is room for " + std::to_string(profiler::TracedRuns::kMaxOps) +
        " operations (trace.steps ends a trace before)");
  }
  if (cut_) {
    add("kernels of the first " + of_runs +
        " alone: no more are recorded (trace.skip_steps and trace.steps say which)");
  }
}

profiler::GpuSlices GpuTrace::take(double read_gbps) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kRecording) stop();
  if (state_ == State::kWaiting) problem_ = "no kernels: no step ran while the trace was recording";
  state_ = State::kDone;
  const std::vector<profiler::ProgramRun> runs = runs_.take(recording_);
  if (problem_.empty()) judge(runs);
  return {profiler::gpu_slices(recording_, runs, read_gbps), lost_};
}

std::string GpuTrace::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace tenon::app
