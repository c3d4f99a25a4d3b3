// Several processes' traces as one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {

// Writes the traces to `path` (gzipped if it ends in ".gz"), each one's times moved by its baseTimeNanoseconds, so that
// what happened at once stands below one another, and its processes numbered and named apart: "rank0: engine". names:
// one a trace; metadata is that of the first, that of further ones under "NAME.key". Returns what could not be done:
// a trace without baseTimeNanoseconds begins where the merged one does. Throws Error(kIo), also, without `replace`,
// where a file is there at the end.
std::vector<std::string> merge_traces(std::span<const TraceFile> traces, std::span<const std::string> names,
                                      const std::string& path, bool replace = true);

}  // namespace tenon::profiler
