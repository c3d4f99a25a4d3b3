// These find slices by their texts, and sum up an area.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/table.h"
#include "tenon/profiler/trace_file.h"

namespace tenon::view {

struct Area {
  int64_t from_ns = 0, to_ns = 0;
  uint32_t first_track = 0, end_track = 0;
};

// Has a row for each name of the slices that lie in the area, at least in part: how often, the time within the area,
// the mean and the longest of whole slices, the share of the area's width. The most time comes first. Slices at every
// depth count, so a sum over rows counts nested ones twice.
Table sum_area(const profiler::TraceFile& file, const Area& area);

// Returns the slices whose name, category or an argument's text contains `text`, in any case, ordered by begin.
std::vector<uint32_t> search(const profiler::TraceFile& file, std::string_view text);

}  // namespace tenon::view
