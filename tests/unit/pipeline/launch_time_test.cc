// When the next step is launched, by times that are handed in.
#include "../../../core/src/pipeline/launch_time.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

using namespace std::chrono_literals;
using Clock = LaunchTime::Clock;
constexpr Clock::time_point kBegin{1h};

Clock::duration waited(const LaunchTime& t) {
  return t.after(kBegin) - kBegin;
}

TEST(LaunchTime, NothingIsWaitedForBeforeAStepWasSeen) {
  EXPECT_EQ(waited(LaunchTime()), 0ms);
}

TEST(LaunchTime, ShortStepsAreFollowedAtOnce) {
  LaunchTime t;
  t.add(1999us);
  EXPECT_EQ(waited(t), 0ms);
}

TEST(LaunchTime, LongStepsAreFollowedShortlyBeforeTheirEnd) {
  LaunchTime short_step, long_step;
  short_step.add(2ms);
  EXPECT_EQ(waited(short_step), 1500us);  // half a millisecond is left
  long_step.add(16ms);
  EXPECT_EQ(waited(long_step), 14ms);  // an eighth is left
}

TEST(LaunchTime, AStepThatSeemsLongChangesLittle) {
  LaunchTime t;
  t.add(16ms);
  t.add(100ms);
  EXPECT_EQ(waited(t), 14437500ns);  // 16.5 ms are expected then
}

TEST(LaunchTime, AShorterStepIsBelievedAtOnce) {
  LaunchTime t;
  t.add(16ms);
  t.add(8ms);
  EXPECT_EQ(waited(t), 7ms);
}

// Steps that are launched by it and last 8 ms, but once the host wakes 3 ms late: the device has to wait once, and not again.
TEST(LaunchTime, OneLateLaunchIsTheLast) {
  LaunchTime t;
  t.add(8ms);
  Clock::duration waits{};
  for (int step = 0; step < 20; ++step) {
    const Clock::duration launched = waited(t) + (step == 5 ? 3ms : 0ms);
    const Clock::duration late = std::max(launched - 8ms, Clock::duration());
    if (step != 5) waits += late;
    t.add(8ms + late);
  }
  EXPECT_EQ(waits, 0ms);
  EXPECT_GE(waited(t), 7ms);
}

}  // namespace
}  // namespace tenon
