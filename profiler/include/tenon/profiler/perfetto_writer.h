// This sink writes recorded events as Chrome JSON that Perfetto shows without a
// loss (docs/profiling.md has the schema).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/core/trace_sink.h"
#include "tenon/profiler/gpu_slice.h"

namespace tenon::profiler {

// These are the slices of a whole trace.
struct GpuSlices {
  std::vector<GpuSlice> slices = {};  // they are in any order; those of one place may overlap
  uint64_t lost = 0;                  // so many were lost and are not among them
};

struct PerfettoOptions {
  std::string path = {};                  // the file is gzipped if its name ends in ".gz"
  bool replace = true;                    // it may take the place of a file that is there at the end
  std::string mode = "cpu";               // it says which sources record; "graph" and "node" promise kernels
  std::vector<trace::Arg> metadata = {};  // these stand beside mode and dropped_records: model, git, ...
  // The thread that writes calls the next four: read_gbps at any time, the others once, at the end; kernels comes
  // last.
  std::function<std::vector<trace::Arg>()> more_metadata = {};
  std::function<double()> read_gbps =
      {};  // an op's rate is a share of it: in 1e9 bytes a second; 0 while it is not known
  std::function<std::vector<std::vector<trace::Arg>>()> devices = {};  // deviceProperties: a list for each device
  std::function<GpuSlices()> kernels = {};
};

// While it runs, it writes `path` + ".part" in the array form, which loads however it is cut; at the end that becomes
// the object form and is renamed to `path`, so `path` is only ever whole. If writing fails (a full disk), the part
// file is removed and the error, with the path, what was written so far and the system's reason, comes out of
// drained() or finish(). A span that carries bytes_read and bytes_written also gets gbps and, where read_gbps is
// known, peak_pct. Non-finite numbers are never written: args become the strings "NaN", "Infinity", "-Infinity";
// counters are left out and counted in metadata.dropped_records, as are events of a request whose beginning was lost.
// A request still open at the end is closed there, with the arg open_at_end. A drain is a span of the overhead
// process, tid 1; lost events show on its tid 2 from one drain to the next. Throws Error(kIo) if the file cannot be
// created or `path` exists and is no regular file.
std::unique_ptr<trace::Sink> make_perfetto_writer(PerfettoOptions options);

}  // namespace tenon::profiler
