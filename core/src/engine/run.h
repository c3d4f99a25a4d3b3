// One generate() call: sequences through steps until all have ended.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "request_trace.h"
#include "sequence.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/scheduler.h"

namespace tenon {

class Run {
 public:
  // trace: nullptr if nothing is recorded.
  Run(Pipeline& pipeline, Scheduler& scheduler, const RequestTrace* trace, RunStats& stats);

  // Throws Error when a step fails; what the sequences have then is theirs.
  void run(std::vector<Sequence>& sequences, uint64_t seed);

 private:
  void admit(std::vector<Sequence>& sequences, uint64_t seed);
  void draft(Sequence& s);
  void fill_batch();
  void add_rows(Sequence& s, uint32_t rows);
  // Whether the step after this one is certain to take the same sequences, one row each, unless a lone one ends.
  bool certain_to_go_on() const;
  void step();
  // Every sequence takes its tokens; their text, of several sequences with " | " between.
  std::string_view commit(const StepResult& result);
  void commit(Sequence& s, size_t share, size_t& out, const StepResult& result);
  void account(double seconds, uint64_t new_tokens);
  void retire();

  Pipeline& pipeline_;
  Scheduler& scheduler_;
  const RequestTrace* trace_;
  RunStats& stats_;
  StepBatch batch_;
  std::vector<uint32_t> free_slots_;
  std::vector<Sequence*> active_;
  std::vector<SequenceState> states_;
  std::vector<StepShare> shares_;
  std::string text_;  // of the step's tokens, for the trace
  size_t next_ = 0;   // the first sequence that has not started
};

}  // namespace tenon
