// Traces of several processes become one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {

// Writes the traces to `path` (gzipped if it ends in ".gz"). Each trace's times are moved by its baseTimeNanoseconds,
// so that what happened at once is shown at once, and its processes get numbers and names of their own: "rank0:
// engine". `names` has one for each trace. The first trace's metadata keeps its keys, that of the others stands under
// "NAME.key". Returns what could not be done: a trace without baseTimeNanoseconds begins when the merged one does.
// Throws Error(kIo); without `replace` also if a file is there at the end.
std::vector<std::string> merge_traces(std::span<const TraceFile> traces, std::span<const std::string> names,
                                      const std::string& path, bool replace = true);

}  // namespace tenon::profiler
