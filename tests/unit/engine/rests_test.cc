// This tests who rests, by times that are handed in.
#include "../../../core/src/engine/rests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

namespace tenon {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

const std::vector<uint32_t> kPrograms = {1, 2, 4, 8, 16, 32, 48, 64, 96, 128};

void measure(Rests& rests, uint32_t rows, double seconds, int steps = 4) {
  for (int i = 0; i < steps; ++i) rests.took(rows, seconds);
}

// This has members with an id each, counted from 1, and says who of them rests in a step.
class Members {
 public:
  explicit Members(const std::vector<int32_t>& priorities) {
    for (const int32_t priority : priorities) add(priority);
  }

  void add(int32_t priority) { all_.push_back({.priority = priority, .id = ++last_}); }
  void leave(uint64_t id) {
    std::erase_if(all_, [&](const One& one) { return one.id == id; });
  }
  uint32_t size() const { return static_cast<uint32_t>(all_.size()); }
  void wake() {
    for (One& one : all_) one.rest.rests = false;
  }
  std::vector<uint64_t> resting(Rests& rests) {
    std::vector<Rests::Member> members;
    for (One& one : all_) members.push_back({&one.rest, one.priority});
    rests.choose(members);
    std::vector<uint64_t> ids;
    for (const One& one : all_) {
      if (one.rest.rests) ids.push_back(one.id);
    }
    return ids;
  }

 private:
  struct One {
    Rest rest = {};
    int32_t priority;
    uint64_t id;
  };
  std::deque<One> all_;
  uint64_t last_ = 0;
};

// Steps of all sequences are slow, those of the next smaller program are not.
Rests resting(uint32_t members, uint32_t fewer, uint32_t steps = 3) {
  Rests rests(kPrograms, steps);
  measure(rests, members, 10);
  measure(rests, fewer, 1);
  return rests;
}

// This has nine sequences after the first step of a turn, in which the ninth rests.
struct Turn {
  Rests rests;
  Members members;
};
Turn nine_of_whom_the_last_rests(uint32_t steps) {
  Turn turn{resting(9, 8, steps), Members({0, 0, 0, 0, 0, 0, 0, 0, 0})};
  EXPECT_THAT(turn.members.resting(turn.rests), ElementsAre(9));
  turn.rests.took(8, 1);
  return turn;
}

TEST(Rests, FewerRunWhereThatMakesMoreTokensASecond) {
  Rests rests(kPrograms, 16);
  measure(rests, 64, 4.05);
  measure(rests, 96, 4.76);
  EXPECT_EQ(rests.rows_for(65), 64u);
  EXPECT_EQ(rests.rows_for(74), 64u);  // that is 15.80 and 15.55 tokens a second
  EXPECT_EQ(rests.rows_for(75), 75u);  // that is 15.76: less than the change of who rests costs
  EXPECT_EQ(rests.rows_for(76), 76u);
  EXPECT_EQ(rests.rows_for(96), 96u);
}

// The largest program has as many rows as sequences can run, whatever its kernels are made for.
TEST(Rests, AProgramsOwnNumberIsComparedToo) {
  Rests rests({32, 48, 64, 65}, 16);
  measure(rests, 64, 4.05);
  measure(rests, 65, 4.76);
  EXPECT_EQ(rests.rows_for(65), 64u);
}

TEST(Rests, ProgramsAreTriedAndNotGuessedAt) {
  Rests rests(kPrograms, 16);
  EXPECT_EQ(rests.rows_for(65), 65u);
  measure(rests, 65, 4.76, 3);
  EXPECT_EQ(rests.rows_for(65), 65u);
  rests.took(65, 4.76);
  EXPECT_EQ(rests.rows_for(65), 64u) << "it was never seen";
  measure(rests, 64, 4.7, 3);
  EXPECT_EQ(rests.rows_for(65), 64u) << "three steps do not tell yet";
  rests.took(64, 4.7);
  EXPECT_EQ(rests.rows_for(65), 65u);
}

// The first run of a program loads its kernels, and in the second one its graph is captured.
TEST(Rests, SlowStepsNowAndThenDoNotCount) {
  Rests rests(kPrograms, 16);
  measure(rests, 65, 4.76);
  for (const double seconds : {400.0, 90.0, 4.05, 4.05}) rests.took(64, seconds);
  EXPECT_EQ(rests.rows_for(65), 64u);
  for (const double seconds : {4.05, 4.05, 9.0, 4.05, 9.0, 4.05, 9.0, 4.05}) rests.took(64, seconds);
  EXPECT_EQ(rests.rows_for(65), 64u);
}

TEST(Rests, NewTimesTakeThePlaceOfOldOnes) {
  Rests rests(kPrograms, 16);
  measure(rests, 64, 4.05);
  measure(rests, 65, 4.76);
  measure(rests, 64, 5.05, 8);
  EXPECT_EQ(rests.rows_for(65), 65u);
}

TEST(Rests, OldTimesAreMeasuredAnew) {
  Rests rests(kPrograms, 16);
  measure(rests, 65, 4.76);
  measure(rests, 64, 4.05, 1024);
  EXPECT_EQ(rests.rows_for(65), 64u);
  rests.took(64, 4.05);
  EXPECT_EQ(rests.rows_for(65), 65u) << "the time of 65 is old";
  measure(rests, 65, 4.0, 3);
  EXPECT_EQ(rests.rows_for(65), 65u);
  rests.took(65, 4.0);
  EXPECT_EQ(rests.rows_for(65), 65u) << "of the new times alone, 65 is the faster one";
  measure(rests, 65, 4.0, 1024);
  EXPECT_EQ(rests.rows_for(65), 64u) << "the time of 64 is old";
}

TEST(Rests, ThereIsNothingBelowTheSmallestProgram) {
  Rests rests({4, 8}, 16);
  measure(rests, 3, 1);
  EXPECT_EQ(rests.rows_for(3), 3u);
  EXPECT_EQ(rests.rows_for(0), 0u);
  EXPECT_EQ(Rests({}, 16).rows_for(5), 5u);
}

TEST(Rests, WhoRestsStaysSoForATurn) {
  Rests rests = resting(10, 8);
  Members members({0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  std::vector<std::vector<uint64_t>> steps;
  for (int i = 0; i < 9; ++i) {
    steps.push_back(members.resting(rests));
    EXPECT_EQ(rests.go_on(10), i % 3 != 2) << i;
    rests.took(8, 1);
  }
  const std::vector<uint64_t> first = {9, 10}, second = {7, 8}, third = {5, 6};
  EXPECT_THAT(steps, ElementsAre(first, first, first, second, second, second, third, third, third));
}

TEST(Rests, StepsOfAllGoOnWithoutAnEnd) {
  Rests rests(kPrograms, 3);
  measure(rests, 10, 1);
  measure(rests, 8, 1);
  Members members({0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(members.resting(rests), ElementsAre());
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(rests.go_on(10));
    rests.took(10, 1);
  }
  measure(rests, 10, 2);
  EXPECT_TRUE(rests.go_on(10)) << "half of its newest steps were fast";
  rests.took(10, 2);
  EXPECT_FALSE(rests.go_on(10)) << "they have become slow";
}

TEST(Rests, EverybodyRestsEquallyOften) {
  for (const uint32_t count : {9U, 11U, 13U, 15U}) {
    Rests rests = resting(count, 8, 1);
    Members members(std::vector<int32_t>(count, 0));
    std::map<uint64_t, int> rested;
    std::vector<uint64_t> before;
    for (uint32_t i = 0; i < 10 * count; ++i) {
      const std::vector<uint64_t> now = members.resting(rests);
      EXPECT_EQ(now.size(), count - 8);
      for (const uint64_t id : now) {
        ++rested[id];
        EXPECT_THAT(before, Each(::testing::Ne(id))) << "it rested in the turn before, too";
      }
      before = now;
      rests.took(8, 1);
    }
    ASSERT_EQ(rested.size(), count);
    for (const auto& [id, times] : rested) EXPECT_EQ(times, 10 * (count - 8)) << id << " of " << count;
  }
}

TEST(Rests, AHigherPriorityRestsLast) {
  Rests rests = resting(10, 8, 1);
  Members members({0, 1, 1, 1, 0, 1, 1, 0, 1, 0});
  std::map<uint64_t, int> rested;
  for (int i = 0; i < 40; ++i) {
    for (const uint64_t id : members.resting(rests)) ++rested[id];
    rests.took(8, 1);
  }
  EXPECT_THAT(rested, ElementsAre(std::pair(1, 20), std::pair(5, 20), std::pair(8, 20), std::pair(10, 20)));
}

// Three of twelve would have to rest all the time.
TEST(Rests, NobodyRestsForEver) {
  Rests rests = resting(12, 8, 1);
  Members members({1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
  std::map<uint64_t, int> rested;
  for (int i = 0; i < 40; ++i) {
    for (const uint64_t id : members.resting(rests)) ++rested[id];
    rests.took(8, 1);
  }
  for (const uint64_t id : {10U, 11U, 12U}) EXPECT_EQ(rested[id], 20) << id;
  for (uint64_t id = 1; id < 10; ++id) EXPECT_NEAR(rested[id], 11, 1) << id;
}

TEST(Rests, WhoComesRestsAfterThoseWhoAreThere) {
  auto [rests, members] = nine_of_whom_the_last_rests(1);
  members.leave(9);
  members.add(0);  // this is 10
  for (uint64_t id = 8; id > 0; --id) {
    EXPECT_THAT(members.resting(rests), ElementsAre(id));
    rests.took(8, 1);
  }
  EXPECT_THAT(members.resting(rests), ElementsAre(10));
}

TEST(Rests, ATurnGoesOnIfSomebodyTakesThePlaceOfOneWhoRuns) {
  auto [rests, members] = nine_of_whom_the_last_rests(3);
  members.leave(3);
  members.add(0);
  EXPECT_THAT(members.resting(rests), ElementsAre(9));
  members.add(0);  // now two have to rest: others do
  EXPECT_THAT(members.resting(rests), ElementsAre(7, 8));
}

TEST(Rests, TheyBeginAnewAfterStepsOfAll) {
  auto [rests, members] = nine_of_whom_the_last_rests(3);
  members.wake();  // a prompt came
  EXPECT_THAT(members.resting(rests), ElementsAre(8));
}

TEST(Rests, WhoIsLeftRuns) {
  auto [rests, members] = nine_of_whom_the_last_rests(3);
  for (uint64_t id = 1; id < 9; ++id) members.leave(id);
  EXPECT_THAT(members.resting(rests), ElementsAre());
}

}  // namespace
}  // namespace tenon
