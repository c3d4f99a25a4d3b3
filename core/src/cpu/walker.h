// Runs step programs on the CPU.
#pragma once

#include <map>
#include <vector>

#include "../pipeline/runner.h"
#include "thread_team.h"

namespace tenon {

// Phases go on when their chunks are done, not when all threads have come: a thread that gets no core is missed by
// nobody.
class Walker : public Runner {
 public:
  // The recorder may be nullptr; else it outlives the walker.
  Walker(uint32_t threads, trace::Recorder* recorder);

  uint32_t threads() const { return team_.size(); }
  // Without it the program's ops are walked unseen.
  void prepare(const Program& program) override;
  trace::Track& track() override { return *tracks_[0]; }
  Status run(const Program& program, const StepLoad& load) override;
  Status run_first(const Program&, const StepLoad&, size_t) override { return {}; }
  Status run_rest(const Program& program, const StepLoad& load, size_t) override { return run(program, load); }
  Status run_each(const Program& program, size_t ops, const std::function<void(size_t op)>& done) override;
  Status finish() override { return {}; }
  Status watch(OpWatch watch) override;

 private:
  struct Walk;
  struct Cursor;
  // All threads walk the program.
  Status walk(Walk& walk);
  void walk(Walk& walk, uint32_t thread);
  // Runs chunks [begin, end) of the phase.
  void run_part(Walk& walk, uint32_t thread, const Cursor& at, uint32_t begin, uint32_t end);
  // The thread that has ended a phase's last chunk calls this: it tells the watch,
  // and opens the next phase that has chunks.
  void complete(Walk& walk, uint32_t thread, Cursor at);
  void open(Walk& walk, Cursor at);

  trace::Recorder* recorder_;
  OpWatch watch_;
  std::vector<trace::Track*> tracks_;  // there is one for each thread; those of untraced threads are idle_
  trace::Track idle_;
  std::map<const Program*, std::vector<trace::OriginId>> origins_;
  std::vector<trace::OriginId> layer_origins_;  // [layer + 1]; 0 = there is none yet
  std::vector<uint64_t> ends_;                  // ticks at which ops of the step under way have ended
  // The upper half has the open phase's number, the lower one its first chunk that nobody has taken.
  alignas(64) std::atomic<uint64_t> front_{0};
  alignas(64) std::atomic<uint32_t> done_{0};  // so many of its chunks are done
  ThreadTeam team_;                            // it is last: its threads use the members above
};

}  // namespace tenon
