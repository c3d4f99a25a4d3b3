// Runs step programs on the CPU.
#pragma once

#include <map>
#include <vector>

#include "../pipeline/runner.h"
#include "thread_team.h"

namespace tenon {

class Walker : public Runner {
 public:
  // recorder may be nullptr; else it outlives the walker.
  Walker(uint32_t threads, trace::Recorder* recorder);

  uint32_t threads() const { return team_.size(); }
  // Without it the program's ops are walked unseen.
  void prepare(const Program& program) override;
  trace::Track& track() override { return *tracks_[0]; }
  Status run(const Program& program, const StepLoad& load) override;
  Status finish() override { return {}; }
  Status watch(OpWatch watch) override;

 private:
  struct Walk;
  void walk(Walk& walk, uint32_t thread);
  void run_phase(Walk& walk, uint32_t thread, size_t op, uint32_t phase);

  trace::Recorder* recorder_;
  OpWatch watch_;
  std::vector<trace::Track*> tracks_;  // by thread; those of untraced threads are idle_
  trace::Track idle_;
  std::map<const Program*, std::vector<trace::SiteId>> sites_;
  std::vector<trace::SiteId> layer_sites_;  // by layer + 1; 0 = none yet
  Barrier barrier_;
  alignas(64) std::atomic<uint32_t> next_chunk_{0};
  ThreadTeam team_;  // last: its threads use the members above
};

}  // namespace tenon
