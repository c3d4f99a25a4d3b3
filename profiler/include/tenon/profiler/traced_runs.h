// The runs of programs in a recording of kernels, and, where only some steps are written, whose kernels are wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "tenon/profiler/gpu_slice.h"

namespace tenon::profiler {

// Thread: any.
class TracedRuns {
 public:
  // kept: a run is held until its step is decided upon; else every run is wanted.
  explicit TracedRuns(bool kept) : kept_(kept) {}

  // The number of the run, for its tags.
  uint32_t begin(std::span<const ProgramOp> ops, const StepLoad& load);
  void one_by_one(uint32_t run);
  // Steps in their order. Of each program the newest run that was launched one by one stays in any case: the others'
  // kernels are told by it. Beyond kMaxOps ops a step that is written has no kernels, for memory's sake.
  void decide(uint64_t step, bool written);

  // See KernelRecorder::Wanted.
  bool wanted(uint64_t tag) const;
  size_t size() const;       // runs that are held
  uint64_t written() const;  // runs whose step was written, those without room too
  uint64_t refused() const;  // those without room

  // The wanted runs, and of the recording what is theirs, tagged with their places in the list. The recorder is
  // stopped.
  std::vector<ProgramRun> take(KernelRecording& recording);

  static constexpr uint64_t kMaxOps = 1U << 16U;

 private:
  struct Held {
    ProgramRun run;
    bool written = false;
  };
  using Runs = std::map<uint32_t, Held>;  // by number
  Runs::iterator forget(Runs::iterator run);

  const bool kept_;
  mutable std::mutex mutex_;
  Runs runs_;
  uint32_t next_ = 0, undecided_ = 0;             // numbers; of the oldest such run
  std::map<const ProgramOp*, uint32_t> lessons_;  // by program: a run whose step is not written
  uint64_t written_ = 0, refused_ = 0, ops_ = 0;
};

}  // namespace tenon::profiler
