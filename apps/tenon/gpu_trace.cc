#include "gpu_trace.h"

#include <utility>

#include "tenon/core/error.h"

namespace tenon::app {

void GpuTrace::attach(Pipeline& pipeline, const trace::Recorder& recorder) {
  pipeline_ = &pipeline, recorder_ = &recorder;
  runs_.reserve(kMaxRuns);
  pipeline.watch({.begin = [this](const Program& p, const StepLoad& load) { return begin(p, load); },
                  .op = [this](const Program& p, size_t i) { op(p, i); }});
}

bool GpuTrace::begin(const Program& program, const StepLoad&) {
  const std::lock_guard lock(mutex_);
  const bool wanted = recorder_->capturing() && runs_.size() < kMaxRuns;
  queue_ = program.launch(0).queue;
  if (state_ == State::kWaiting && wanted) start();
  if (state_ == State::kRecording && !wanted) stop();
  if (state_ != State::kRecording) return false;
  kernels_.tag(profiler::kernel_tag(static_cast<uint32_t>(runs_.size())));
  runs_.push_back({.ops = program.ops()});
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
    kernels_.start(true);
    state_ = State::kRecording;
  } catch (const Error& e) {
    problem_ = e.diagnostics().front().message;
    state_ = State::kDone;
  }
}

void GpuTrace::stop() {
  state_ = State::kDone;
  const tenon_device& device = pipeline_->device();
  static_cast<void>(device.wait(device.self, queue_, nullptr));  // a failure is the step's to tell
  try {
    recording_ = kernels_.stop();
  } catch (const Error& e) {
    problem_ = e.diagnostics().front().message;
  }
}

profiler::GpuSlices GpuTrace::take() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kRecording) stop();
  state_ = State::kDone;
  return {profiler::name_kernels(recording_, runs_), recording_.dropped + recording_.untimed};
}

}  // namespace tenon::app
