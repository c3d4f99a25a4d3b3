// to_ns() finds the two pairs (ticks, ns) on either side and follows the line between them, in integers and rounded
// down: so times never go backwards, and an event never comes after one that was recorded later. A pair is the
// narrowest of five readings of both clocks.
#include "clock.h"

#include <time.h>

#include <algorithm>
#include <limits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace tenon::trace {
namespace {

__extension__ using Wide = unsigned __int128;
constexpr int kRateBits = 48;

int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

bool tsc_is_invariant() noexcept {
#if defined(__x86_64__)
  // This is the advanced power management information, EDX bit 8; the kernel shows it as constant_tsc and nonstop_tsc.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0x80000007U, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8U)) != 0;
#else
  return false;
#endif
}

TickClock::TickClock(ClockSource source) noexcept : tsc_(source == ClockSource::kBest && tsc_is_invariant()) {}

uint64_t TickClock::ticks() const noexcept {
#if defined(__x86_64__)
  if (tsc_) return __rdtsc();
#endif
  return static_cast<uint64_t>(monotonic_ns());
}

TickConverter::TickConverter(const TickClock& clock) : clock_(&clock) {
  Pair first = read();
  origin_ns_ = first.ns;
  first.ns = 0;
  pairs_.push_back(first);
}

TickConverter::Pair TickConverter::read() const noexcept {
  if (!clock_->tsc()) {
    const uint64_t ticks = clock_->ticks();
    return {ticks, static_cast<int64_t>(ticks) - origin_ns_, 0};
  }
  // This is the tightest of a few tries: an interrupt between the readings would bend the line.
  Pair best{};
  uint64_t best_width = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = clock_->ticks();
    const int64_t ns = monotonic_ns();
    const uint64_t after = clock_->ticks();
    if (after - before < best_width) {
      best_width = after - before;
      best = {before + best_width / 2, ns - origin_ns_, 0};
    }
  }
  return best;
}

void TickConverter::sample() {
  const Pair next = read();
  Pair& last = pairs_.back();
  if (next.ticks <= last.ticks || next.ns < last.ns) return;
  last.rate =
      static_cast<uint64_t>((Wide{static_cast<uint64_t>(next.ns - last.ns)} << kRateBits) / (next.ticks - last.ticks));
  pairs_.push_back(next);
}

void TickConverter::forget_before(int64_t ns) {
  const auto kept = std::upper_bound(pairs_.begin(), pairs_.end(), ns,
                                     [](int64_t value, const Pair& pair) { return value < pair.ns; });
  if (kept - pairs_.begin() > 1) pairs_.erase(pairs_.begin(), kept - 1);
}

int64_t TickConverter::to_ns(uint64_t ticks) const noexcept {
  if (ticks <= pairs_.front().ticks) return pairs_.front().ns;
  if (ticks >= pairs_.back().ticks) return pairs_.back().ns;
  // Most are asked for soon.
  auto line = pairs_.end() - 2;
  for (int i = 0; i < 4 && line->ticks > ticks; ++i) --line;
  if (line->ticks > ticks) {
    line = std::upper_bound(pairs_.begin(), line, ticks,
                            [](uint64_t value, const Pair& pair) { return value < pair.ticks; }) -
           1;
  }
  // The line is computed in integers and rounded down, so that it is monotone and never goes beyond the next pair.
  return line->ns + static_cast<int64_t>((Wide{ticks - line->ticks} * line->rate) >> kRateBits);
}

}  // namespace tenon::trace
