#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "tenon/core/error.h"
#include "tenon/core/plugin_check.h"

namespace tenon {
namespace {

using namespace std::chrono_literals;
using End = ChildOutcome::End;
using ::testing::HasSubstr;

ChildOutcome outcome_of(const std::function<std::string()>& work) {
  return run_in_child(work, 60s);
}

TEST(Child, HandsBackItsResult) {
  const ChildOutcome outcome = outcome_of([] { return std::string(100000, 'x') + '\n'; });
  EXPECT_EQ(outcome.end, End::kReturned);
  EXPECT_EQ(outcome.text, std::string(100000, 'x') + '\n');
  EXPECT_EQ(outcome_of([] { return std::string(); }).end, End::kReturned);
}

TEST(Child, ChangesNothingHere) {
  int value = 1;
  outcome_of([&] { return std::to_string(value = 2); });
  EXPECT_EQ(value, 1);
}

TEST(Child, TellsHowItEnded) {
  const ChildOutcome threw = outcome_of([]() -> std::string { throw Error(ErrorCode::kPlugin, "no good"); });
  EXPECT_EQ(threw.end, End::kThrew);
  EXPECT_EQ(threw.text, "no good");
  const ChildOutcome crashed = outcome_of([]() -> std::string {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    return "";
  });
  EXPECT_EQ(crashed.end, End::kCrashed);
  EXPECT_THAT(crashed.text, HasSubstr("crashed with signal 11"));
  const ChildOutcome left = outcome_of([]() -> std::string { _exit(3); });
  EXPECT_EQ(left.end, End::kCrashed);
  EXPECT_EQ(left.text, "ended its process with exit code 3");
}

TEST(Child, IsStoppedWhenItsTimeIsUp) {
  const ChildOutcome outcome = run_in_child(
      []() -> std::string {
        while (true) pause();
      },
      50ms);
  EXPECT_EQ(outcome.end, End::kTimedOut);
  EXPECT_EQ(outcome.text, "gave no answer within 0.05 s");
}

}  // namespace
}  // namespace tenon
