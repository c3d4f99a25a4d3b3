// This tests which of a pipeline's programs a batch is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../../core/src/pipeline/step_recording.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

struct Bounds {
  uint32_t rows, rows_per_seq, out_rows;
  bool sample = true, round = false;
};

class ProgramFor : public testing::Test {
 protected:
  // These are the programs of three sequences with two drafts each, with scoring;
  // they are not in the order of their sizes.
  ProgramFor() {
    for (const Bounds& of : {Bounds{3, 1, 3}, Bounds{1, 1, 1}, Bounds{9, 3, 9}, Bounds{9, 3, 9, true, true},
                             Bounds{64, 64, 9}, Bounds{16, 16, 9}, Bounds{64, 64, 32, false}, Bounds{3, 3, 3}}) {
      auto b = sdk::abi_struct<tenon_bounds>();
      b.rows = of.rows;
      b.rows_per_seq = of.rows_per_seq;
      b.out_rows = of.out_rows;
      programs_.push_back({.program = ProgramRecording(b, storages_, {}).finish({}),
                           .sample = of.sample,
                           .moves_on = false,
                           .round = of.round});
    }
  }

  // Returns the index of the program for sequences of so many rows, of each of which the last `outs` are wanted; -1 if
  // there is none.
  std::ptrdiff_t choice(const std::vector<int32_t>& rows, int32_t outs, bool sample = true, bool round = false) const {
    StepBatch batch;
    batch.sample = sample;
    batch.round = round;
    batch.seq_row = {0};
    for (const int32_t n : rows) {
      batch.seq_row.push_back(batch.seq_row.back() + n);
      batch.token.resize(static_cast<size_t>(batch.seq_row.back()));
      batch.out_row.resize(batch.out_row.size() + static_cast<size_t>(outs));
    }
    const StepProgram* found = program_for(batch, programs_);
    return found == nullptr ? -1 : found - programs_.data();
  }

  StorageTable storages_;
  std::vector<StepProgram> programs_;
};

TEST_F(ProgramFor, IsTheSmallestThatFits) {
  EXPECT_EQ(choice({1}, 1), 1);
  EXPECT_EQ(choice({1, 1}, 1), 0);
  EXPECT_EQ(choice({1, 1, 1}, 1), 0);
  EXPECT_EQ(choice({3, 3, 3}, 3), 2);
  EXPECT_EQ(choice({16}, 1), 5);
  EXPECT_EQ(choice({17}, 1), 4);
  EXPECT_EQ(choice({64}, 1), 4);
  EXPECT_EQ(choice({65}, 1), -1);
}

TEST_F(ProgramFor, GoesByTheLongestSequence) {
  EXPECT_EQ(choice({1, 2}, 1), 7);  // there are three rows, two of one sequence
  EXPECT_EQ(choice({2, 1}, 1), 7);
  EXPECT_EQ(choice({2, 2}, 1), 2);
  EXPECT_EQ(choice({1, 4}, 1), 5);
  EXPECT_EQ(choice({4, 1}, 1), 5);
}

// The one that was made for fewer rows a sequence comes first.
TEST_F(ProgramFor, IsTheFirstOfEqualSize) {
  EXPECT_EQ(choice({1, 1, 1}, 1), 0);
  EXPECT_EQ(choice({3}, 3), 7);
}

TEST_F(ProgramFor, HasRoomForTheLogitsThatAreWanted) {
  EXPECT_EQ(choice({5}, 5), 5);
  EXPECT_EQ(choice({10}, 9), 5);
  EXPECT_EQ(choice({10}, 10), -1);
  EXPECT_EQ(choice({10}, 10, false), 6);
}

TEST_F(ProgramFor, SamplesScoresOrDraftsAsTheBatchDoes) {
  EXPECT_EQ(choice({1}, 1, false), 6);
  EXPECT_EQ(choice({3, 3}, 3, true, true), 3);
  EXPECT_EQ(choice({4}, 1, true, true), -1);
}

}  // namespace
}  // namespace tenon
