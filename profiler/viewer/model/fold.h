// Folding finds what of a lane is to be drawn, so that the cost follows pixels and not events.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::view {

// This is one slice, or a run of slices that are each too narrow to tell apart.
struct Box {
  int64_t begin_ns = 0, end_ns = 0;
  uint32_t first = 0;  // the slice, or the first of the run
  uint32_t count = 1;
};

// This is to be drawn of one lane.
struct LaneView {
  uint32_t first, last;    // the lane's slices, see TraceTrack::lanes
  int64_t from_ns, to_ns;  // to_ns is past it
  int64_t min_ns;          // a slice that is drawn alone is no shorter; > 0
};

// Finds the slices of the lane that lie in [from_ns, to_ns), in order, by binary search. One shorter than min_ns is
// joined with those after it that end within min_ns of what is joined so far; there are at most (to_ns - from_ns) /
// min_ns + 2 boxes.
void fold(const profiler::TraceFile& file, const LaneView& view, std::vector<Box>& out);

}  // namespace tenon::view
