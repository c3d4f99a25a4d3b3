// This decides who rests. A program takes nearly as long for few live rows as for many, so a step can make fewer tokens
// a second with one sequence more than the next smaller program has rows. Where measured times say that, as many
// sequences as that program has rows run, and the others rest: they keep slot and cache, and have no row in the step.
//
// An example: programs of 64 and 96 rows take 4.05 and 4.76 ms. 64 sequences make 15.8 tokens in a millisecond and 65
// of them 13.7, so one rests. 80 make 16.8, so nobody does.
//
// Who rests stays so for a turn of several steps, since rests are chosen by the times of steps that have been read, and a
// step after which that happens is not followed at once on a device with queues. In the next turn others rest: of the lowest priority first, then those whose last
// rest is the longest ago. Whoever comes is at the end of that line. Whoever rests runs in the next turn, unless fewer
// run than have to rest, so nobody is held up for long.
//
// A program's time is the median of its newest steps. One that was not measured lately is tried for a few steps.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon {

// Every sequence has this.
struct Rest {
  bool rests = false;
  uint64_t number = 0;  // those who are to rest wait in a line, the lowest first; 0: it is new
};

// Thread: the one that steps.
class Rests {
 public:
  // `programs` are their rows, ascending. `steps` are those of a turn; with 0 nobody rests.
  Rests(std::vector<uint32_t> programs, uint32_t steps);

  struct Member {
    Rest* rest;
    int32_t priority;
  };
  // Says of sequences that would have a row each in the next step, in the order of their admission, which of them rest.
  // Their order changes.
  void choose(std::span<Member> members);
  // Says before a step whether the one after it is to leave out the same sequences, if there are as many by then.
  bool go_on(uint32_t members) const;
  // Notes that a step of so many rows, one a sequence, has taken so long.
  void took(uint32_t rows, double seconds);

  // Returns how many of the sequences run, by the times so far; to try a program counts as a reason, too.
  uint32_t rows_for(uint32_t members) const;
  bool are_on() const { return steps_ > 0; }

 private:
  static constexpr uint32_t kSamples = 8;
  struct Program {
    uint32_t rows;
    uint64_t steps = 0, newest = 0;  // so many were measured since it was tried; the number of the last one
    std::array<double, kSamples> seconds{};
    double median = 0;
  };
  size_t program_for(uint32_t rows) const;  // the number of the smallest that fits; programs_.size() if none does
  bool is_measured(const Program& program) const;
  bool tries(uint32_t members) const;  // the smaller program would run in order to be measured

  std::vector<Program> programs_;
  uint32_t steps_;
  uint64_t step_ = 0;            // so many were measured
  uint64_t last_ = 0;            // the highest number of a sequence
  uint32_t left_ = 0;            // steps of this turn; 0 too if nobody rests in it
  bool somebody_rests_ = false;  // in this turn
};

}  // namespace tenon
