// Runs step programs on the CPU.
#pragma once

#include <map>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/program.h"
#include "tenon/core/trace.h"
#include "thread_team.h"

namespace tenon {

// What turns an op's cost into this step's: live rows, and the sum over them of the tokens that each attends to.
struct StepLoad {
  double rows = 0, context = 0;
};

// Thread: one run() at a time.
class Walker {
 public:
  // recorder may be nullptr; else it outlives the walker.
  Walker(uint32_t threads, trace::Recorder* recorder);

  uint32_t threads() const { return team_.size(); }
  // [setup] Names the program's ops in the trace; without it they are walked unseen.
  void prepare(const Program& program);
  // Of the thread that calls run().
  trace::Track& track() { return *tracks_[0]; }
  // Walks a linked program. No allocation unless it fails. On failure the step's results are void.
  Status run(const Program& program, const StepLoad& load);

 private:
  struct Walk;
  void walk(Walk& walk, uint32_t thread);
  void run_phase(Walk& walk, uint32_t thread, size_t op, uint32_t phase);

  trace::Recorder* recorder_;
  std::vector<trace::Track*> tracks_;  // by thread; those of untraced threads are idle_
  trace::Track idle_;
  std::map<const Program*, std::vector<trace::SiteId>> sites_;
  std::vector<trace::SiteId> layer_sites_;  // by layer + 1; 0 = none yet
  Barrier barrier_;
  alignas(64) std::atomic<uint32_t> next_chunk_{0};
  ThreadTeam team_;  // last: its threads use the members above
};

}  // namespace tenon
