// These are the events of the newest steps, held back until somebody wants them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tenon/core/trace_sink.h"

namespace tenon::trace {

// Thread: one at a time.
class KeptSteps {
 public:
  using Decided = decltype(RecorderOptions::decided);
  // A step that takes at least slow_ns is wanted; 0 = none is.
  KeptSteps(size_t steps, int64_t slow_ns, Decided decided = {})
      : max_steps_(steps), slow_ns_(slow_ns), decided_(std::move(decided)) {}

  // Steps are told in their order, each before events that are younger than its end. An event belongs to the step
  // within which, or before which, it ended; one that comes after its step was decided upon shares that step's fate.
  void step(uint64_t number, int64_t begin_ns, int64_t end_ns);
  void event(const Event& event, Sink& sink);

  // Decides upon the steps that were told: passes on all that is kept as of a slow one, forgets what is too old.
  void decide(Sink& sink);
  // Passes on all steps that are kept.
  void pass_on(Sink& sink);

  uint64_t events_passed() const { return events_passed_; }
  // These are the ends of the last step that was decided upon, and of the last
  // one that was passed on; -1: there is none.
  int64_t decided_ns() const { return decided_until_ns_; }
  int64_t passed_ns() const { return passed_until_ns_; }
  const Recorder::Kept& counts() const { return counts_; }

 private:
  struct Copy {
    Event event;
    std::array<uint64_t, kMaxValues> values;
    std::string text;
  };
  struct Step {
    uint64_t number = 0;
    int64_t end_ns = 0;
    bool slow = false;
    std::vector<Copy> events;
  };
  void keep(Copy copy);
  void pass_on(const Copy& copy, Sink& sink);
  void settle(const Step& step, bool written);

  const size_t max_steps_;
  const int64_t slow_ns_;
  const Decided decided_;
  std::deque<Step> steps_;
  std::vector<Copy> open_;  // events of the step that has not ended
  int64_t decided_until_ns_ = -1;
  int64_t passed_until_ns_ = -1;
  bool passed_ = false;  // true: the last step that left was passed on
  uint64_t events_passed_ = 0;
  Recorder::Kept counts_;
};

}  // namespace tenon::trace
