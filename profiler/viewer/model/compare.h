// Two traces are compared operation by operation.
#pragma once

#include "analysis.h"
#include "table.h"

namespace tenon::view {

// Returns a row for each operation of the steps of `phase`, whole steps first in each phase, then by falling
// difference: medians of what it adds to a step, in both traces, and whether they differ beyond the noise of the steps
// (see compare_traces). It has no rows if a trace has none.
Table comparison(const TraceFile& a, const TraceFile& b, Phase phase);

}  // namespace tenon::view
