// These tests look at what the shipped schedulers do beyond what any must.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler_calls.h"

namespace tenon::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
uint32_t no_space(const Component& scheduler, const std::vector<tenon_sequence>& sequences, uint32_t asking) {
  std::vector<const tenon_sequence*> list;
  for (const tenon_sequence& s : sequences) list.push_back(&s);
  const tenon_workload w = workload(list, {});
  uint32_t victim = 999;
  EXPECT_EQ(scheduler.table<tenon_scheduler>().no_space(scheduler.self(), &w, asking, &victim, nullptr), TENON_OK);
  return victim;
}

TEST(Single, RunsTheOneThatRunsAndThenTheOneThatWaitsLongest) {
  const Component single("scheduler", "single");
  EXPECT_EQ(single.table<tenon_scheduler>().sequences(single.self()), 1U);
  EXPECT_EQ(next(single, {generating(3, 9, 2), waiting(4, 5, 9)}).shares, (Shares{{0, 3}}));
  EXPECT_EQ(next(single, {waiting(4, 500), waiting(5, 5, 9)}).shares, (Shares{{0, 100}}));
}

TEST(Lockstep, FillsPromptsBeforeItDecodes) {
  const Component lockstep("scheduler", "lockstep", {{"sequences", 3}});
  EXPECT_EQ(lockstep.table<tenon_scheduler>().sequences(lockstep.self()), 3U);
  EXPECT_EQ(
      next(lockstep, {generating(1, 9), prompt(2, 60, 10), waiting(3, 80), waiting(4, 80)}, {.free_slots = 1}).shares,
      (Shares{{1, 50}, {2, 50}}));
  EXPECT_EQ(
      next(lockstep, {generating(1, 9, 3), generating(2, 9, 3), waiting(3, 80)}, {.rows = 5, .free_slots = 0}).shares,
      (Shares{{0, 4}}))
      << "drafts run whole or not at all";
  EXPECT_EQ(next(lockstep, {generating(1, 9, 3), generating(2, 9, 3), generating(3, 9)}, {.rows = 9}).shares,
            (Shares{{0, 4}, {1, 4}, {2, 1}}))
      << "what just fits runs";
  EXPECT_EQ(next(lockstep, {generating(1, 9, 3), generating(2, 9, 3), generating(3, 9)}, {.rows = 5}).shares,
            (Shares{{0, 4}, {2, 1}}))
      << "who needs less goes on";
}

TEST(Lockstep, StartsNoMoreThanThereAreSlotsAndRowsFor) {
  const Component lockstep("scheduler", "lockstep", {{"sequences", 3}});
  const std::vector<tenon_sequence> all = {waiting(1, 10), waiting(2, 10), waiting(3, 10)};
  EXPECT_EQ(next(lockstep, all, {.free_slots = 2}).shares, (Shares{{0, 10}, {1, 10}}));
  EXPECT_EQ(next(lockstep, all, {.rows = 10, .free_slots = 2}).shares, (Shares{{0, 10}}));
  EXPECT_EQ(next(lockstep, all, {.rows = 11, .free_slots = 3}).shares, (Shares{{0, 10}, {1, 1}}));
  EXPECT_EQ(next(lockstep, {generating(1, 9), waiting(2, 10)}, {.free_slots = 0}).shares, (Shares{{0, 1}}));
}

TEST(Continuous, FillsTheBudgetWithPromptsBesideDecoding) {
  const Component continuous("scheduler", "continuous", {{"sequences", 8}, {"budget_rows", 32}});
  EXPECT_EQ(next(continuous, {generating(1, 9), generating(2, 9, 3), prompt(3, 60, 10), waiting(4, 7)}).shares,
            (Shares{{0, 1}, {1, 4}, {2, 27}}));
  EXPECT_EQ(next(continuous, {generating(1, 9), prompt(3, 20, 10), waiting(4, 7), waiting(5, 90)}).shares,
            (Shares{{0, 1}, {1, 10}, {2, 7}, {3, 14}}));
  EXPECT_EQ(next(continuous, {waiting(4, 70), waiting(5, 90)}).shares, (Shares{{0, 70}, {1, 30}}))
      << "without decoding the budget does not hold";
}

TEST(Continuous, LeavesAFewRowsBeyondAProgramForTheNextStep) {
  const Component continuous("scheduler", "continuous", {{"budget_rows", 1024}});
  Room room{.rows = 1024, .program_rows = {16, 256, 512, 768, 1024}};
  const auto shares = [&](const std::vector<tenon_sequence>& sequences) {
    return next(continuous, sequences, room).shares;
  };
  EXPECT_EQ(shares({generating(1, 9), generating(2, 9), waiting(3, 512)}), (Shares{{0, 1}, {1, 1}, {2, 510}}));
  EXPECT_EQ(shares({generating(1, 9), prompt(2, 400, 0), waiting(3, 143)}), (Shares{{0, 1}, {1, 400}, {2, 111}}));
  EXPECT_EQ(shares({generating(1, 9), waiting(2, 544)}), (Shares{{0, 1}, {1, 544}})) << "33 of 512 are not few";
  EXPECT_EQ(shares({generating(1, 9), prompt(2, 500, 0), waiting(3, 12)}), (Shares{{0, 1}, {1, 500}, {2, 11}}));
  EXPECT_EQ(shares({generating(1, 9), prompt(2, 510, 0), waiting(3, 2)}), (Shares{{0, 1}, {1, 510}, {2, 1}}));
  EXPECT_EQ(shares({generating(1, 9), prompt(2, 510, 0), waiting(3, 3)}), (Shares{{0, 1}, {1, 510}, {2, 3}}))
      << "a prompt has most of its rows";
  EXPECT_EQ(shares({generating(1, 9), waiting(2, 17)}), (Shares{{0, 1}, {1, 17}})) << "programs of few rows are short";
  EXPECT_EQ(shares({waiting(2, 1024)}), (Shares{{0, 1024}}));
  room.program_rows.clear();
  EXPECT_EQ(shares({generating(1, 9), waiting(3, 512)}), (Shares{{0, 1}, {1, 512}}));
}

// Beside sequences that fill all of a program but one row, the rest of a prompt would come row after row.
TEST(Continuous, EndsAPromptInAFewStepsBesideAnyNumberOfSequences) {
  const Component continuous("scheduler", "continuous", {{"sequences", 1024}, {"budget_rows", 1024}});
  const Room room{.rows = 1024, .program_rows = {16, 256, 512, 768, 1024}};
  for (uint32_t beside = 0; beside < 600; ++beside) {
    std::vector<tenon_sequence> sequences;
    for (uint32_t i = 0; i < beside; ++i) sequences.push_back(generating(i, 9));
    for (const uint32_t length : {17u, 33u, 200u, 530u}) {
      uint32_t cached = 0, steps = 0;
      for (; cached < length && steps < 9; ++steps) {
        sequences.push_back(prompt(beside, length, cached));
        cached += next(continuous, sequences, room).shares.back().second;
        sequences.pop_back();
      }
      const uint32_t least = beside + length > 1024 ? 2 : 1;
      ASSERT_LE(steps, least + 2) << length << " tokens beside " << beside;
    }
  }
}

TEST(Continuous, GivesEveryoneATokenBeforeDrafts) {
  const Component continuous("scheduler", "continuous", {{"budget_rows", 4}});
  EXPECT_EQ(next(continuous, {generating(1, 9, 5), generating(2, 9, 5), generating(3, 9, 5)}).shares,
            (Shares{{0, 2}, {1, 1}, {2, 1}}));
}

TEST(Continuous, AdmitsByPriorityThenByArrivalAndWaitingCounts) {
  const Component continuous("scheduler", "continuous", {{"patience", 10}});
  EXPECT_EQ(next(continuous, {waiting(1, 5), waiting(2, 5, 1), waiting(3, 5, 1)}, {.rows = 12}).shares,
            (Shares{{1, 5}, {2, 5}, {0, 2}}));
  EXPECT_EQ(next(continuous, {waiting(1, 5, 0, 29), waiting(2, 5, 1)}, {.free_slots = 1}).shares, (Shares{{0, 5}}));
  const Component patient("scheduler", "continuous", {{"patience", 0}});
  EXPECT_EQ(next(patient, {waiting(1, 5, 0, 1 << 30), waiting(2, 5, 1)}, {.free_slots = 1}).shares, (Shares{{1, 5}}));
}

TEST(Continuous, AdmitsNobodyThatThePagesDoNotHold) {
  const Component continuous("scheduler", "continuous");
  // 9 + 1 tokens take 2 pages; the one that runs takes 1 more for its next token.
  EXPECT_EQ(next(continuous, {generating(1, 8), waiting(2, 9)}, {.page_tokens = 8, .free_pages = 3}).shares,
            (Shares{{0, 1}, {1, 9}}));
  EXPECT_EQ(
      next(continuous, {generating(1, 8), waiting(2, 9), waiting(3, 1)}, {.page_tokens = 8, .free_pages = 2}).shares,
      (Shares{{0, 1}}))
      << "nobody overtakes";
  EXPECT_EQ(next(continuous, {waiting(2, 900)}, {.page_tokens = 8, .free_pages = 2}).shares, (Shares{{0, 100}}))
      << "alone, the cache has the last word";
}

TEST(Continuous, CountsNoPagesThatSomebodyHoldsAlready) {
  const Component continuous("scheduler", "continuous");
  tenon_sequence alike = waiting(2, 20);  // two of its three pages are in the cache, and the other one takes one more
  alike.cached = 16;
  alike.pending = 4;
  const Room room = {.page_tokens = 8, .free_pages = 2};
  EXPECT_EQ(next(continuous, {generating(1, 8), alike}, room).shares, (Shares{{0, 1}}));
  alike.held = 16;
  EXPECT_EQ(next(continuous, {generating(1, 8), alike}, room).shares, (Shares{{0, 1}, {1, 4}}));
}

TEST(Continuous, PreemptsForAHigherPriorityOnly) {
  const Component continuous("scheduler", "continuous");
  const std::vector<tenon_sequence> equal = {generating(1, 9), generating(2, 9), waiting(3, 5, 0)};
  EXPECT_THAT(next(continuous, equal, {.free_slots = 0}).preempted, IsEmpty());
  const std::vector<tenon_sequence> higher = {generating(1, 9), generating(2, 9), generating(4, 9, 0, 7),
                                              waiting(5, 5, 1)};
  const Plan plan = next(continuous, higher, {.free_slots = 0});
  EXPECT_THAT(plan.preempted, ElementsAre(1)) << "the last that came of the lowest priority";
  EXPECT_EQ(plan.shares, (Shares{{0, 1}, {2, 1}, {3, 5}}));
  EXPECT_THAT(next(continuous, higher, {.free_slots = 1}).preempted, IsEmpty());
}

TEST(NoSpace, TakesFromTheLeastImportant) {
  for (const char* name : {"single", "lockstep", "continuous"}) {
    const Component scheduler("scheduler", name);
    const std::vector<tenon_sequence> all = {generating(1, 9, 0, 1), generating(2, 9), generating(3, 9), waiting(4, 9)};
    EXPECT_EQ(no_space(scheduler, all, 0), 2U) << name;
    EXPECT_EQ(no_space(scheduler, all, 1), 2U) << name;
    EXPECT_EQ(no_space(scheduler, all, 2), 2U) << name << ": it gives up its own place";
    const uint32_t waits = no_space(scheduler, all, 3);
    EXPECT_TRUE(waits == 3U || waits == TENON_NO_SEQUENCE) << name << ": it keeps waiting";
  }
}

}  // namespace
}  // namespace tenon::test
