// This says when the step after the one that runs is launched: so late that whoever comes meanwhile is in it, and so
// early that the device does not wait for the host.
//
// How long a launch takes the host and when the step will end are not known beforehand. What shows is the
// slack: how long the host had to wait for the step after it had launched the next one. Where there is more
// than enough, the next launch is a little later; where there is little, it is sooner, and much sooner where
// there is none, since then the device waited.
#pragma once

#include <algorithm>
#include <chrono>

namespace tenon {

// Each program has one, for its own steps.
class LaunchTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kSlack = std::chrono::microseconds(500);  // so much is left of a step
  static constexpr Clock::duration kLeast = std::chrono::milliseconds(2);    // shorter steps are not worth waiting for

  // A step took so long, and had so much slack.
  void add(Clock::duration took, Clock::duration slack) {
    if (slack < kSlack / 4) {
      delay_ -= delay_ / 4;
    } else if (slack < kSlack) {
      delay_ = std::max(delay_ - (kSlack - slack), Clock::duration());
    } else if (took >= kLeast) {
      delay_ += (slack - kSlack) / 8;
    }
  }
  // Returns when the step after the one that began at that time is to be launched.
  Clock::time_point after(Clock::time_point begin) const { return begin + delay_; }

 private:
  Clock::duration delay_{};
};

}  // namespace tenon
