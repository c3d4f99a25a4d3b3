// This records what a GPU does in a traced run.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "tenon/core/pipeline.h"
#include "tenon/profiler/kernel_recorder.h"
#include "tenon/profiler/perfetto_writer.h"
#include "tenon/profiler/traced_runs.h"

namespace tenon::app {

struct GpuTraceOptions {
  bool nodes = true;         // it has every kernel, of graphs too; else a graph's run is one
  bool keep_steps = false;   // the recorder keeps steps: only those that are written count
  std::string library = {};  // see profiler::KernelRecorder
};

// Thread: decide(), take() and problem() from any.
class GpuTrace {
 public:
  // Throws Error if CUPTI is not to be had.
  explicit GpuTrace(const GpuTraceOptions& options = {})
      : options_(options), runs_(options.keep_steps), kernels_(options.library) {}

  // It is called once the pipeline is loaded. It records what that runs while the recorder captures; unless steps are
  // kept, these are up to kMaxRuns runs of programs. The first of each program launches its ops one by one, to learn
  // which kernels are whose. The recorder, and this, outlive the pipeline.
  void attach(Pipeline& pipeline, const trace::Recorder& recorder);

  // See trace::RecorderOptions::decided.
  void decide(uint64_t step, bool written) { runs_.decide(step, written); }

  // Ends the recording, when the device has done what it was given, and names what it has. It is called while the
  // pipeline lives. profiler::gpu_slices says what read_gbps is.
  profiler::GpuSlices take(double read_gbps = 0);
  std::string cupti_version() const { return kernels_.version(); }
  // Says what is missing and why: "no kernels: ...", "12 records ..."; "" if nothing is. It is called after take().
  std::string problem() const;

  static constexpr size_t kMaxRuns = 64;

 private:
  enum class State { kWaiting, kRecording, kDone };
  bool begin(const Program& program, const StepLoad& load);
  void op(const Program& program, size_t op);
  void start();
  void stop();
  void judge(const std::vector<profiler::ProgramRun>& runs);

  const GpuTraceOptions options_;
  mutable std::mutex mutex_;
  profiler::TracedRuns runs_;
  profiler::KernelRecorder kernels_;
  const Pipeline* pipeline_ = nullptr;
  void* queue_ = nullptr;
  const trace::Recorder* recorder_ = nullptr;
  State state_ = State::kWaiting;
  uint32_t run_ = 0;  // the newest run
  bool cut_ = false;  // there were more runs than it records
  std::map<const Program*, bool> known_;
  profiler::KernelRecording recording_;
  uint64_t lost_ = 0;  // records and runs without any
  std::string problem_;
};

}  // namespace tenon::app
