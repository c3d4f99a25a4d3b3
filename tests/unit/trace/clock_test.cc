// The conversion is tested through a clock of its own process: what can be said without timing is order.
#include "clock.h"

#include <gtest/gtest.h>

namespace tenon::trace {
namespace {

TEST(TickConverter, IsMonotoneAcrossPairs) {
  for (const ClockSource source : {ClockSource::kBest, ClockSource::kMonotonic}) {
    const TickClock clock(source);
    TickConverter converter(clock);
    std::vector<uint64_t> ticks;
    for (int i = 0; i < 2000; ++i) {
      ticks.push_back(clock.ticks());
      if (i % 10 == 0) converter.sample();
    }
    converter.sample();
    int64_t previous = 0;
    for (const uint64_t tick : ticks) {
      const int64_t ns = converter.to_ns(tick);
      ASSERT_LE(previous, ns);
      previous = ns;
    }
    EXPECT_LE(previous, converter.last_ns());
  }
}

TEST(TickConverter, ClampsToItsPairs) {
  const TickClock clock(ClockSource::kMonotonic);
  TickConverter converter(clock);
  const uint64_t now = clock.ticks();
  EXPECT_EQ(converter.to_ns(0), 0);
  EXPECT_EQ(converter.to_ns(now + 1'000'000'000), converter.last_ns());
}

TEST(TickConverter, CountsNanosecondsOfTheMonotonicClock) {
  const TickClock clock(ClockSource::kMonotonic);
  const TickConverter before(clock);
  TickConverter converter(clock);
  const uint64_t a = clock.ticks();
  const uint64_t b = clock.ticks();
  converter.sample();
  EXPECT_EQ(converter.to_ns(b) - converter.to_ns(a), static_cast<int64_t>(b - a));
}

TEST(TickConverter, ForgetsWithoutChangingWhatItKeeps) {
  const TickClock clock(ClockSource::kBest);
  TickConverter converter(clock);
  std::vector<uint64_t> ticks;
  std::vector<int64_t> ns;
  for (int i = 0; i < 10; ++i) {
    ticks.push_back(clock.ticks());
    converter.sample();
  }
  for (const uint64_t t : ticks) ns.push_back(converter.to_ns(t));
  converter.forget_before(ns[5]);
  for (size_t i = 5; i < ticks.size(); ++i) EXPECT_EQ(converter.to_ns(ticks[i]), ns[i]);
  EXPECT_LE(converter.to_ns(ticks[0]), ns[5]);
  converter.forget_before(converter.last_ns() + 1);
  EXPECT_EQ(converter.to_ns(ticks[9]), converter.last_ns());
}

TEST(TickClock, UsesTheCounterOnlyWhereItIsInvariant) {
  EXPECT_EQ(TickClock(ClockSource::kBest).tsc(), tsc_is_invariant());
  EXPECT_FALSE(TickClock(ClockSource::kMonotonic).tsc());
}

}  // namespace
}  // namespace tenon::trace
