// This reads ticks and turns them into nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/core/trace.h"

namespace tenon::trace {

// Returns whether the time stamp counter runs at one rate in all power states, so that its ticks can be read as time.
bool tsc_is_invariant() noexcept;

// Tracks read this clock. Thread: any.
class TickClock {
 public:
  explicit TickClock(ClockSource source) noexcept;
  bool tsc() const noexcept { return tsc_; }
  uint64_t ticks() const noexcept;

 private:
  bool tsc_;
};

// Turns ticks into nanoseconds since its construction by straight lines between pairs of both clocks. Monotone.
class TickConverter {
 public:
  explicit TickConverter(const TickClock& clock);

  // Takes another pair. To be called after the ticks that shall be converted were read.
  void sample();

  // Ticks outside the pairs count as the nearest one.
  int64_t to_ns(uint64_t ticks) const noexcept;

  // No ticks from before `ns` are asked for any more; it is less than what the pairs span.
  void forget_before(int64_t ns);

  // Returns the last pair's time.
  int64_t last_ns() const noexcept { return pairs_.back().ns; }

 private:
  struct Pair {
    uint64_t ticks;
    int64_t ns;
    uint64_t rate;  // the slope of the line to the next pair: nanoseconds a tick, times 2^kRateBits
  };
  Pair read() const noexcept;

  const TickClock* clock_;
  int64_t origin_ns_ = 0;
  std::vector<Pair> pairs_;
};

}  // namespace tenon::trace
