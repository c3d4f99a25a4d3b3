// These tests run functions in child processes: their results, their ends, their time limits, and what they have
// started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

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

// Returns a process that the child has started, which holds the pipe and would go on for ever.
pid_t lingering() {
  const pid_t child = fork();
  while (child == 0) pause();
  return child;
}
// A dead one may stay listed until somebody asks after it.
bool is_gone(pid_t process) {
  for (int i = 0; i < 100; ++i) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string number, name, state;
    if (!(stat >> number >> name >> state) || state == "Z") return true;
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

TEST(Child, WhatItHasStartedEndsWithIt) {
  const ChildOutcome outcome = outcome_of([] { return std::to_string(lingering()); });
  EXPECT_EQ(outcome.end, End::kReturned);
  EXPECT_TRUE(is_gone(std::stoi(outcome.text)));
}

TEST(Child, WhatItHasStartedEndsWhenTheTimeIsUp) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const ChildOutcome outcome = run_in_child(
      [&]() -> std::string {
        const pid_t process = lingering();
        if (write(ends[1], &process, sizeof(process)) != sizeof(process)) return "cannot write";
        while (true) pause();
      },
      500ms);
  EXPECT_EQ(outcome.end, End::kTimedOut) << outcome.text;
  pid_t process = 0;
  ASSERT_EQ(read(ends[0], &process, sizeof(process)), static_cast<ssize_t>(sizeof(process)));
  EXPECT_TRUE(is_gone(process));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tenon
