// These tests ask when the next step is launched, by times that are handed in.
#include "../../../core/src/pipeline/launch_time.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

using namespace std::chrono_literals;
using Duration = LaunchTime::Clock::duration;
constexpr LaunchTime::Clock::time_point kBegin{1h};

// This takes steps of a device, each launched by the host as the time says.
class Steps {
 public:
  // A step lasts so long, and to launch one takes the host so long. Returns how
  // long the device waited for the next step.
  Duration run(Duration step, Duration launch) {
    const Duration launched = delay() + launch, waited = std::max(launched - step, Duration());
    time_.add(std::max(step, launched), std::max(step - launched, Duration()));
    return waited;
  }
  Duration run(int steps, Duration step, Duration launch) {
    Duration waited{};
    for (int i = 0; i < steps; ++i) waited += run(step, launch);
    return waited;
  }
  Duration delay() const { return time_.after(kBegin) - kBegin; }

 private:
  LaunchTime time_;
};

TEST(LaunchTime, NothingIsWaitedForBeforeAStepWasSeen) {
  EXPECT_EQ(Steps().delay(), 0ms);
}

TEST(LaunchTime, ShortStepsAreFollowedAtOnce) {
  Steps steps;
  steps.run(100, 1999us, 50us);
  EXPECT_EQ(steps.delay(), 0ms);
}

TEST(LaunchTime, ComesNearToTheEndAndNeverAfterIt) {
  for (const Duration launch : {50us, 1800us, 3000us}) {
    Steps steps;
    EXPECT_EQ(steps.run(100, 6ms, launch), 0ms);
    EXPECT_LE(steps.delay() + launch, 5500us);
    EXPECT_GE(steps.delay() + launch, 5400us);
  }
}

TEST(LaunchTime, AHostThatIsSlowerThanAStepLaunchesAtOnce) {
  Steps steps;
  steps.run(100, 6ms, 7ms);
  EXPECT_EQ(steps.delay(), 0ms);
}

TEST(LaunchTime, StepsThatBecomeShorterMakeTheDeviceWaitForAFewOfThem) {
  Steps steps;
  steps.run(100, 12ms, 200us);
  int late = 0;
  for (int i = 0; i < 100; ++i) late += steps.run(6ms, 200us) > 0ms ? 1 : 0;
  EXPECT_LE(late, 3);
  EXPECT_GE(steps.delay(), 5ms);
}

TEST(LaunchTime, ALaunchThatIsLateOnceIsFollowedByOneInTime) {
  Steps steps;
  steps.run(100, 8ms, 200us);
  EXPECT_GT(steps.run(8ms, 3ms), 0ms);
  EXPECT_EQ(steps.run(100, 8ms, 200us), 0ms);
  EXPECT_GE(steps.delay(), 7ms);
}

}  // namespace
}  // namespace tenon
