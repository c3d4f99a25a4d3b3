// The kernels of a traced run.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "tenon/core/pipeline.h"
#include "tenon/profiler/kernel_recorder.h"
#include "tenon/profiler/perfetto_writer.h"

namespace tenon::app {

// Thread: take() from any.
class GpuTrace {
 public:
  // Throws Error if CUPTI is not to be had.
  GpuTrace() = default;

  // Once the pipeline is loaded. Records what it runs while the recorder captures, up to kMaxRuns runs of programs; the
  // first of each program launches its ops one by one, to learn which kernels are whose. The recorder, and this,
  // outlive the pipeline.
  void attach(Pipeline& pipeline, const trace::Recorder& recorder);

  // Ends the recording, when the device has done what it was given, and names what it has. While the pipeline lives.
  profiler::GpuSlices take();
  const std::string& problem() const { return problem_; }  // why kernels are missing, or ""

  static constexpr size_t kMaxRuns = 64;

 private:
  enum class State { kWaiting, kRecording, kDone };
  bool begin(const Program& program, const StepLoad& load);
  void op(const Program& program, size_t op);
  void start();
  void stop();

  std::mutex mutex_;
  profiler::KernelRecorder kernels_;
  const Pipeline* pipeline_ = nullptr;
  void* queue_ = nullptr;
  const trace::Recorder* recorder_ = nullptr;
  State state_ = State::kWaiting;
  std::vector<profiler::ProgramRun> runs_;
  std::map<const Program*, bool> known_;
  profiler::KernelRecording recording_;
  std::string problem_;
};

}  // namespace tenon::app
