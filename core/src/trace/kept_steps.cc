#include "kept_steps.h"

#include <algorithm>
#include <utility>

namespace tenon::trace {
namespace {

int64_t end_of(const Event& event) {
  return std::max(event.begin_ns, event.end_ns);
}

}  // namespace

void KeptSteps::step(uint64_t number, int64_t begin_ns, int64_t end_ns) {
  const int64_t took = end_ns - begin_ns;
  steps_.push_back({.number = number, .end_ns = end_ns, .slow = slow_ns_ > 0 && took >= slow_ns_, .events = {}});
  ++counts_.steps_seen;
  counts_.slowest = std::max(counts_.slowest, std::chrono::nanoseconds(took));
  for (Copy& copy : std::exchange(open_, {})) keep(std::move(copy));
}

void KeptSteps::keep(Copy copy) {
  const auto of = std::lower_bound(steps_.begin(), steps_.end(), end_of(copy.event),
                                   [](const Step& step, int64_t ns) { return step.end_ns < ns; });
  (of != steps_.end() ? of->events : open_).push_back(std::move(copy));
}

void KeptSteps::event(const Event& event, Sink& sink) {
  if (end_of(event) <= decided_until_ns_ && !passed_) return;
  Copy copy{.event = event, .values = {}, .text = std::string(event.text)};
  std::copy(event.values.begin(), event.values.end(), copy.values.begin());
  if (end_of(event) <= decided_until_ns_) {
    pass_on(copy, sink);
  } else {
    keep(std::move(copy));
  }
}

void KeptSteps::pass_on(const Copy& copy, Sink& sink) {
  Event event = copy.event;
  event.values = {copy.values.data(), copy.event.values.size()};
  event.text = copy.text;
  sink.event(event);
  ++events_passed_;
}

void KeptSteps::settle(const Step& step, bool written) {
  decided_until_ns_ = step.end_ns;
  passed_ = written;
  if (written) passed_until_ns_ = step.end_ns;
  if (decided_) decided_(step.number, written);
}

void KeptSteps::pass_on(Sink& sink) {
  for (const Step& step : steps_) {
    for (const Copy& copy : step.events) pass_on(copy, sink);
    settle(step, true);
  }
  counts_.steps_written += steps_.size();
  steps_.clear();
}

void KeptSteps::decide(Sink& sink) {
  std::deque<Step> told = std::exchange(steps_, {});
  for (Step& step : told) {
    steps_.push_back(std::move(step));
    if (steps_.back().slow) {
      pass_on(sink);
    } else if (steps_.size() > max_steps_) {
      settle(steps_.front(), false);
      steps_.pop_front();
    }
  }
}

}  // namespace tenon::trace
