// Folding finds what of a lane is to be drawn, so that the cost follows pixels and not events.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::view {

// One slice, or a run of slices that are each too narrow to tell apart.
struct Box {
  int64_t begin_ns = 0, end_ns = 0;
  uint32_t first = 0;  // the slice, or the first of the run
  uint32_t count = 1;
};

// Slices of one lane (`first` to `last`, see TraceTrack::lanes) that lie in [from_ns, to_ns), in order. One
// shorter than min_ns is joined with those after it that end within min_ns of what is joined so far. At most
// (to_ns - from_ns) / min_ns + 2 boxes, found by binary search. min_ns > 0.
void fold(const profiler::TraceFile& file, uint32_t first, uint32_t last, int64_t from_ns, int64_t to_ns,
          int64_t min_ns, std::vector<Box>& out);

}  // namespace tenon::view
