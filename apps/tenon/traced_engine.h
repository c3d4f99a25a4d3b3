// A traced engine is an engine with the trace that its configuration asks for.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "command.h"

namespace tenon::app {

class GpuTrace;

// While one lives whose trace keeps steps, the signal USR1 asks for them. One thread at a time may use it.
class TracedEngine {
 public:
  // The configuration comes from `args`; `options` has what else the engine is opened with.
  explicit TracedEngine(const PipelineArgs& args, EngineOptions options = {});
  ~TracedEngine();
  TracedEngine(const TracedEngine&) = delete;
  TracedEngine& operator=(const TracedEngine&) = delete;

  Engine& engine() { return *engine_; }
  // Loads with progress on standard error; for a trace the read bandwidth is measured then. Throws Interrupted.
  void load();
  // Writes the steps that are kept to the trace and says so, or why not.
  void capture();
  // Ends the trace; says where it is, or what went wrong with it. Returns false if it could not be written.
  bool finish_trace();

 private:
  trace::Recorder* make_recorder(const PipelineConfig& config, bool replace);
  std::vector<trace::Arg> facts();
  std::string problem() const;  // says what of the GPU is missing in the trace; known at its end
  void report_kept() const;

  std::string trace_path_;
  std::atomic<double> read_gbps_ = 0;
  std::mutex facts_mutex_;
  std::vector<trace::Arg> facts_;                 // these are facts about the pipeline, for the trace's metadata
  std::vector<std::vector<trace::Arg>> devices_;  // these are deviceProperties; it is empty until there is one
  std::string problem_;                           // it says why kernels are not even tried
  std::unique_ptr<GpuTrace> gpu_;                 // a CUDA device has it
  std::unique_ptr<trace::Recorder> recorder_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace tenon::app
