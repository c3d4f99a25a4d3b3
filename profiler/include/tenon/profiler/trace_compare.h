// Which ops of two traces differ by more than their steps differ among themselves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {

// How likely two samples of one distribution differ in rank as much as these or more: the Mann-Whitney U test, both
// sides, by the normal approximation with ties and continuity corrected for. 1 if one of them is empty.
double rank_test(std::span<const double> a, std::span<const double> b);

double median(std::span<const double> values);  // 0 of none

struct CompareOptions {
  double threshold = 0.05;  // the least change of a median that counts, as a share of the former one
  double alpha = 0.01;      // the likelihood below which a difference is none of chance
  double min_share = 0.01;  // ops below that share of their steps, in both traces, do not count
};

// Times are of a step: all calls of that op in all layers.
struct OpChange {
  std::string phase, path, op;  // path "": the whole step
  std::string component_a, component_b;
  size_t steps_a = 0, steps_b = 0;  // with that op in them; 0: the trace has none
  double us_a = 0, us_b = 0;        // medians
  double share = 0;                 // of the step, the larger of both traces'
  double p = 1;
  enum class Verdict : uint8_t { kSame, kSlower, kFaster, kOnlyA, kOnlyB } verdict = Verdict::kSame;

  double change() const { return us_a > 0 ? us_b / us_a - 1 : 0; }
};

// Whole steps first in each phase, then ops by falling difference. Phases of only one trace are left out but for their
// whole steps. What an op takes is what it adds (see step_ops).
std::vector<OpChange> compare_traces(const TraceFile& a, const TraceFile& b, const CompareOptions& options = {});

}  // namespace tenon::profiler
