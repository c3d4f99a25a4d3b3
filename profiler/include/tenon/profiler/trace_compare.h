// The comparison finds the ops of two traces that differ by more than their steps differ among themselves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {

// Returns how likely two samples of one distribution differ in rank as much as these or more: the two-sided
// Mann-Whitney U test by the normal approximation, corrected for ties and continuity. 1 if one of them is empty.
double rank_test(std::span<const double> a, std::span<const double> b);

double median(std::span<const double> values);  // returns 0 if there are none

struct CompareOptions {
  double threshold = 0.05;  // the least change of a median that counts, as a share of the former one
  double alpha = 0.01;      // a difference that is less likely than this is not taken for chance
  double min_share = 0.01;  // ops below that share of their steps, in both traces, do not count
};

// This compares one op; a step's time of it is that of all its calls in all layers.
struct OpChange {
  std::string phase, path, op;  // path "": the whole step
  std::string component_a, component_b;
  size_t steps_a = 0, steps_b = 0;  // so many steps have that op; 0: it is not in the trace
  double us_a = 0, us_b = 0;        // these are medians over steps
  double share = 0;                 // its share of the step, the larger one of both traces
  double p = 1;
  enum class Verdict : uint8_t { kSame, kSlower, kFaster, kOnlyA, kOnlyB } verdict = Verdict::kSame;

  double change() const { return us_a > 0 ? us_b / us_a - 1 : 0; }
};

// Returns whole steps first in each phase, then ops, the largest difference first. A phase that only one trace has is
// left out but for its whole steps. An op's time is what it adds (see step_ops).
std::vector<OpChange> compare_traces(const TraceFile& a, const TraceFile& b, const CompareOptions& options = {});

}  // namespace tenon::profiler
