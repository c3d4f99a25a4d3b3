// When the step after the one that runs is launched: so late that whoever comes meanwhile is in it, and so early that the
// device does not wait for the host.
#pragma once

#include <algorithm>
#include <chrono>

namespace tenon {

// Of the steps of one program.
class LaunchTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kLeast = std::chrono::milliseconds(2);   // shorter steps are not worth waiting for
  static constexpr Clock::duration kLead = std::chrono::microseconds(500);  // before the step's end, at least

  // A step took so long. What is expected falls at once and rises slowly, since a step that was launched late seems to take
  // longer than it does.
  void add(Clock::duration took) {
    expected_ = expected_ == Clock::duration() ? took : std::min(took, expected_ + expected_ / 32);
  }
  // Of a step that began at that time; the time itself where nothing is known, or nothing is to be won.
  Clock::time_point after(Clock::time_point begin) const {
    if (expected_ < kLeast) return begin;
    return begin + expected_ - std::max(kLead, expected_ / 8);
  }

 private:
  Clock::duration expected_{};
};

}  // namespace tenon
