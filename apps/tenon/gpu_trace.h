// What a GPU does in a traced run.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tenon/core/pipeline.h"
#include "tenon/profiler/kernel_recorder.h"
#include "tenon/profiler/perfetto_writer.h"

namespace tenon::app {

// Thread: take() and problem() from any.
class GpuTrace {
 public:
  // nodes: every kernel, of graphs too; else a graph's run as one. Throws Error if CUPTI is not to be had.
  explicit GpuTrace(bool nodes = true) : nodes_(nodes) {}

  // Once the pipeline is loaded. Records what it runs while the recorder captures, up to kMaxRuns runs of programs.
  // With nodes the first of each program launches its ops one by one, to learn which kernels are whose. The recorder,
  // and this, outlive the pipeline.
  void attach(Pipeline& pipeline, const trace::Recorder& recorder);

  // Ends the recording, when the device has done what it was given, and names what it has. While the pipeline lives.
  // read_gbps: see profiler::gpu_slices.
  profiler::GpuSlices take(double read_gbps = 0);
  // What is missing and why: "no kernels: ...", "12 records ..."; "" if nothing is. Behind take().
  std::string problem() const;

  static constexpr size_t kMaxRuns = 64;

 private:
  enum class State { kWaiting, kRecording, kDone };
  bool begin(const Program& program, const StepLoad& load);
  void op(const Program& program, size_t op);
  void start();
  void stop();
  void judge();

  const bool nodes_;
  mutable std::mutex mutex_;
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
