#include "gpu_trace.h"

#include <algorithm>
#include <utility>

#include "tenon/core/error.h"

namespace tenon::app {

void GpuTrace::attach(Pipeline& pipeline, const trace::Recorder& recorder) {
  pipeline_ = &pipeline, recorder_ = &recorder;
  runs_.reserve(kMaxRuns);
  pipeline.watch({.begin = [this](const Program& p, const StepLoad& load) { return begin(p, load); },
                  .op = [this](const Program& p, size_t i) { op(p, i); }});
}

bool GpuTrace::begin(const Program& program, const StepLoad& load) {
  const std::lock_guard lock(mutex_);
  const bool wanted = recorder_->capturing() && runs_.size() < kMaxRuns;
  queue_ = program.launch(0).queue;
  if (state_ == State::kWaiting && wanted) start();
  if (state_ == State::kRecording && !wanted) stop();
  if (state_ != State::kRecording) return false;
  kernels_.tag(profiler::kernel_tag(static_cast<uint32_t>(runs_.size())));
  runs_.push_back({.ops = program.ops(), .one_by_one = false, .load = load});
  return !std::exchange(known_[&program], true);
}

void GpuTrace::op(const Program& program, size_t op) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kRecording) return;
  runs_.back().one_by_one = true;
  const auto run = static_cast<uint32_t>(runs_.size() - 1);
  kernels_.tag(op < program.ops().size() ? profiler::kernel_tag(run, static_cast<uint32_t>(op)) : 0);
}

void GpuTrace::start() {
  try {
    kernels_.start(nodes_ ? profiler::GpuRecords::kNodes : profiler::GpuRecords::kGraphs);
    state_ = State::kRecording;
  } catch (const Error& e) {
    problem_ = "no kernels: " + e.diagnostics().front().message;
    state_ = State::kDone;
  }
}

void GpuTrace::stop() {
  state_ = State::kDone;
  const tenon_device& device = pipeline_->device();
  static_cast<void>(device.wait(device.self, queue_, nullptr));  // a failure is the step's to tell
  try {
    recording_ = kernels_.stop();
    judge();
  } catch (const Error& e) {
    problem_ = "no kernels: " + e.diagnostics().front().message;
  }
}

void GpuTrace::judge() {
  using Kind = profiler::GpuActivity::Kind;
  const bool graphs = std::ranges::any_of(recording_.others, [](const auto& a) { return a.kind == Kind::kGraph; });
  const uint64_t lost = recording_.dropped + recording_.untimed;
  if (recording_.kernels.empty() && !graphs) {
    problem_ = "no kernels: CUPTI recorded none in " + std::to_string(runs_.size()) +
               " runs; another profiler may hold the GPU, or this process may not be allowed to";
  } else if (lost > 0) {
    problem_ = std::to_string(lost) + " records of the GPU are lost: " + std::to_string(recording_.dropped) +
               " found no room in CUPTI's buffers, " + std::to_string(recording_.untimed) + " kernels have no times";
  }
}

profiler::GpuSlices GpuTrace::take(double read_gbps) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kRecording) stop();
  if (state_ == State::kWaiting) problem_ = "no kernels: no step ran while the trace was recording";
  state_ = State::kDone;
  return {profiler::gpu_slices(recording_, runs_, read_gbps), recording_.dropped + recording_.untimed};
}

std::string GpuTrace::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace tenon::app
