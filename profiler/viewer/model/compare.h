// Two traces, operation by operation.
#pragma once

#include <string>
#include <vector>

#include "model/analysis.h"
#include "model/table.h"

namespace tenon::view {

struct OpChange {
  std::string name;
  double a_us = 0, b_us = 0;  // medians over the steps of what it adds to one; 0 where the trace has no such operation
  double p = 1;               // two-sided Mann-Whitney: how likely such a difference is if nothing changed
  bool changed = false;       // p < 0.01, and by more than 1 %; or in one trace only
};
struct Comparison {
  std::vector<OpChange> ops;  // the biggest difference first
  OpChange step;              // whole steps
  size_t a_steps = 0, b_steps = 0;
};
// Steps of `phase` in both. Without steps both are empty.
Comparison compare(const Analysis& a, const Analysis& b, Phase phase);
Table to_table(const Comparison& comparison);

// The p-value of the Mann-Whitney U test, two-sided, normal approximation with ties and continuity corrected; 1 where a
// side has fewer than 4.
double rank_test(std::vector<double> a, std::vector<double> b);

}  // namespace tenon::view
