// This keeps the runs of programs in a recording of kernels, and knows whose kernels are wanted if only some steps are
// written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "tenon/profiler/gpu_slice.h"

namespace tenon::profiler {

// Any thread may call every function.
class TracedRuns {
 public:
  // If `kept` is true, a run is held until its step is decided upon; else every run is wanted.
  explicit TracedRuns(bool kept) : kept_(kept) {}

  // Returns the number of a new run, for its tags.
  uint32_t begin(std::span<const ProgramOp> ops, const StepLoad& load);
  void one_by_one(uint32_t run);
  // Decides upon the steps in their order. Each program's newest run that was launched one by one stays in any case,
  // since the others' kernels are told by it. Once kMaxOps ops are held, further steps that are written have no
  // kernels, so that memory does not run out.
  void decide(uint64_t step, bool written);

  // See KernelRecorder::Wanted.
  bool wanted(uint64_t tag) const;
  size_t size() const;       // so many runs are held
  uint64_t written() const;  // so many runs' steps were written, those without room too
  uint64_t refused() const;  // for so many there was no room

  // Returns the wanted runs, and leaves of the recording what is theirs, tagged with their places in
  // the list. The recorder has stopped by then.
  std::vector<ProgramRun> take(KernelRecording& recording);

  static constexpr uint64_t kMaxOps = 1U << 16U;

 private:
  struct Held {
    ProgramRun run;
    bool written = false;
  };
  using Runs = std::map<uint32_t, Held>;  // by the runs' numbers
  Runs::iterator forget(Runs::iterator run);

  const bool kept_;
  mutable std::mutex mutex_;
  Runs runs_;
  uint32_t next_ = 0, undecided_ = 0;             // the numbers of the next run, and of the oldest undecided one
  std::map<const ProgramOp*, uint32_t> lessons_;  // by program, this run is kept although its step is not written
  uint64_t written_ = 0, refused_ = 0, ops_ = 0;
};

}  // namespace tenon::profiler
